"""Tables of the GPU benchmarks' records, in Markdown that is readable as it stands."""

import merged


def aligned(header, rows):
    """Markdown with columns as wide as their widest cell; all but the first are numbers."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]

    def line(cells):
        first, *others = (cell.ljust(width) if column == 0 else cell.rjust(width)
                          for column, (cell, width) in enumerate(zip(cells, widths)))
        return "| " + " | ".join([first, *others]) + " |"
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    return "\n".join([line(header), line(rule), *map(line, rows)])


def number(value, digits):
    return "-" if value is None else f"{value:.{digits}f}"


def state(record):
    """Lowest and highest clock and power that were read while something was timed."""
    readings = [one for case in record["cases"] for name in all_variants(case) for one in name["rounds"]]
    parts = []
    for key, unit in (("mhz", "MHz"), ("watts", "W")):
        values = [one[key] for one in readings if one.get(key) is not None]
        parts.append(f"{min(values)} to {max(values)} {unit}" if values else f"{unit} not read")
    return ", ".join(parts)


def all_variants(case):
    if "variants" in case:
        return case["variants"].values()
    kinds = ("ours", "dense", "grouped")
    return [row[kind] for row in case["products"] for kind in kinds if row[kind] and "rounds" in row[kind]]


def circumstances(record):
    machine, method = record["machine"], record["method"]
    gpus = f"{record['world']} x {machine['gpu']}" if "world" in record else machine["gpu"]
    rested = (f", in brackets {method['rested_calls']} calls after {method['rest_ms'] / 1000:.1f} s of rest, "
              "of all the slower rank" if "rest_ms" in method else "")
    return (f"{gpus}, driver {machine['driver']}, PyTorch {machine['torch']}, {record['date'][:10]}, commit "
            f"{record['commit']}; medians of {record['rounds']} rounds of {method['warm_ms']:.0f} ms to warm and "
            f"{method['timed_ms']:.0f} ms timed, in turn{rested}; {state(record)}.")


# ---- Products

PRODUCTS_HEADER = ["product", "ms", "TFLOP/s", "dense", "share", "target", "met", "grouped_mm ms", "times faster"]


def case_title(case):
    routing = "" if case["routing"] in ("even", "uniform") else f", {case['routing']}"
    return f"{case['hidden']}/{case['intermediate']}, {case['experts']} experts{routing}"


def product_cells(row):
    mine, rival = row["ours"], row["grouped"]
    met = {None: "", True: "yes", False: "NO"}[row["met"]]
    return [row["name"], number(mine["milliseconds"], 3), number(mine["tflops"], 0), number(row["dense"]["tflops"], 0),
            number(row["share"], 3), number(row["target"], 2) if row["target"] else "", met,
            number(rival and rival["milliseconds"], 3), number(row["ahead_of_grouped"], 2)]


def products_in_full(record):
    """A table a case."""
    parts = [f"{case_title(case)}\n\n" + aligned(PRODUCTS_HEADER, [product_cells(row) for row in case["products"]])
             for case in record["cases"]]
    return "\n\n".join(parts)


SHORT = {"gate_up and down": "gate+up and down", "gate_up, kept": "gate+up, kept", "dgate_up": "dA", "dx": "dX",
         "dw2 bf16": "dW2 bf16", "dw2 fp32": "fp32", "dw13 bf16": "dW13 bf16", "dw13 fp32": "fp32"}


def short_cell(row):
    mark = {None: "", True: "", False: " (under)"}[row["met"]]
    behind = row["ahead_of_grouped"] is not None and row["ahead_of_grouped"] < 1
    return number(row["share"], 2) + mark + (" (behind)" if behind else "")


def products_short(record):
    """Shares of dense, a line a case."""
    rows = []
    for case in record["cases"]:
        by_name = {row["name"]: row for row in case["products"]}
        rows.append([case_title(case), *(short_cell(by_name[name]) for name in SHORT)])
    return aligned(["share of dense", *SHORT.values()], rows)


def verdict(record):
    rows = [row for case in record["cases"] for row in case["products"]]
    targets = [row for row in rows if row["met"] is not None]
    rivals = [row for row in rows if row["ahead_of_grouped"] is not None]
    met, ahead = sum(row["met"] for row in targets), sum(row["ahead_of_grouped"] >= 1 for row in rivals)
    return f"{met} of {len(targets)} targets met; {ahead} of {len(rivals)} ahead of torch._grouped_mm"


# ---- Layer

LAYER_HEADER = ["layer, ms", "forward", "backward", "unfused forward", "backward", "dense forward", "backward", "plan",
                "times faster"]


def layer_cells(case):
    ours, rival, dense = case["rows"], case["unfused"], case["dense"]
    times = [record[call] for record in (ours, rival, dense) for call in ("forward", "backward")]
    return [case_title(case), *(number(value, 2) for value in times),
            number(case["phases"]["rows"]["forward"]["plan"], 3), number(rival["both"] / ours["both"], 2)]


def layer_short(record):
    return aligned(LAYER_HEADER, [layer_cells(case) for case in record["cases"]])


# ---- Parallel

PARALLEL_HEADER = ["forward, ms", "ours, fixed", "grows", "rows kept", "all local", "unfused", "dense", "of dense",
                   "times faster", "NVLink MB", "of least"]


def both(sustained, idle, digits=2):
    """One number, and that after rest in brackets."""
    return number(sustained, digits) + (f" ({number(idle, digits)})" if idle is not None else "")


def parallel_title(case, full=False):
    tokens = f", {case['tokens']} tokens" if full or case["tokens"] != 16384 else ""
    return case_title(case) + tokens


def moved(case, name):
    """Bytes that a rank moves, on average, and the least that it has to."""
    counted, least = case["nvlink_bytes"]["moved"][name], case["nvlink_bytes"]["least"]
    return [sum(one["pulled"] + one["pushed"]) / len(one["pulled"]) for one in (counted, least)]


def parallel_cells(case):
    variants, ratios = case["variants"], case["ratios"]
    times = [both(one["milliseconds"], one["idle"] and one["idle"]["milliseconds"])
             for one in (variants[name] for name in (*merged.OURS, merged.LOCAL, merged.UNFUSED, merged.DENSE))]
    against = [both(*(ratios[when][key][merged.FIXED] for when in ("sustained", "idle")))
               for key in ("to_dense", "unfused_to")]
    bytes_moved, least = moved(case, merged.FIXED)
    return [parallel_title(case), *times, *against, number(bytes_moved / 1e6, 0), number(bytes_moved / least, 2)]


def parallel_short(record):
    return aligned(PARALLEL_HEADER, [parallel_cells(case) for case in record["cases"]])


VARIANT_HEADER = ["variant", "ms", "TFLOP/s", "of dense", "unfused / it", "ms after rest", "TFLOP/s", "of dense",
                  "unfused / it"]


def variant_cells(case, name):
    cells = [name]
    for when, one in (("sustained", case["variants"][name]), ("idle", case["variants"][name]["idle"])):
        ratios = case["ratios"][when]
        cells += [number(one and one["milliseconds"], 3), number(one and one["tflops"], 0),
                  number(ratios["to_dense"].get(name), 2), number(ratios["unfused_to"].get(name), 2)]
    return cells


def parallel_case(case):
    """Every variant, the communication that shows, and what the ranks computed and moved."""
    exposed = [number(case["ratios"][when]["exposed_milliseconds"], 3) for when in ("sustained", "idle")]
    phases = case["reports"][merged.FIXED][0]["milliseconds"]
    bytes_moved, least = moved(case, merged.FIXED)
    return "\n\n".join([
        parallel_title(case, full=True),
        aligned(VARIANT_HEADER, [variant_cells(case, name) for name in case["variants"]]),
        f"communication that shows: {exposed[0]} ms, after rest {exposed[1]} ms; NVLink: {bytes_moved / 1e6:.1f} MB a "
        f"rank, least {least / 1e6:.1f}; rows: " + ", ".join(map(str, case["rows"])) +
        f"; unfused sum: {case['unfused_sum']}; rank 0, ms: " +
        ", ".join(f"{name} {value:.3f}" for name, value in phases.items() if value > 0),
    ])


def parallel_in_full(record):
    return "\n\n".join(map(parallel_case, record["cases"]))


def parallel_verdict(record):
    """The targets of the headline cases, one a line."""
    lines = [f"{case_title(case)}: {one['name']}: {one['value']:.3f}, at most {one['most']}: "
             f"{'met' if one['met'] else 'NOT MET'}" for case in record["cases"] for one in case["targets"]]
    return "\n".join(lines)
