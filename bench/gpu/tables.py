"""Tables of the GPU benchmarks' records, in Markdown that is readable as it stands."""

import merged
import merged_backward


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
    if "products" in case:
        kinds = ("ours", "dense", "grouped")
        return [row[kind] for row in case["products"] for kind in kinds if row[kind] and "rounds" in row[kind]]
    return [one for part in (case, case.get("backward", {})) for one in part.get("variants", {}).values()]


def circumstances(record):
    machine, method = record["machine"], record["method"]
    gpus = f"{record['world']} x {machine['gpu']}" if "world" in record else machine["gpu"]
    rested = (f", in brackets {method['rested_calls']} calls after {method['rest_ms'] / 1000:.1f} s of rest, "
              "of all the slower rank" if "rest_ms" in method else "")
    more = f" (of cases with targets {method['headline_rounds']})" if "headline_rounds" in method else ""
    return (f"{gpus}, driver {machine['driver']}, PyTorch {machine['torch']}, {record['date'][:10]}, commit "
            f"{record['commit']}; medians of {record['rounds']} rounds{more} of {method['warm_ms']:.0f} ms to warm and "
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
    return with_waits([aligned(LAYER_HEADER, [layer_cells(case) for case in record["cases"]])], record)


def with_waits(tables, record):
    """And what the time of a multiprocessor goes to in a call, by cause, where that was measured."""
    told = [(entry, one) for entry in record.get("waits", []) for one in entry["calls"]]
    if told:
        rows = [[f"{entry['hidden']}/{entry['intermediate']}, {one['call']}, rank {one['rank']}",
                 *(number(us, 0) for us in one["us"].values())] for entry, one in told]
        tables = [*tables, aligned(["microseconds", *told[0][1]["us"]], rows)]
    return "\n\n".join(tables)


# ---- Parallel

FORWARD_HEADER = ["forward, ms", "ours, fixed", "grows", "rows kept", "grouped", "all local", "unfused", "dense"]
FORWARD_RATIOS = ["forward, ratios", "fixed / dense", "grows / dense", "rows kept / fixed", "times faster", "NVLink MB",
                  "of least"]


def both(sustained, idle, digits=2):
    """One number, and that after rest in brackets."""
    return number(sustained, digits) + (f" ({number(idle, digits)})" if idle is not None else "")


def time_cell(part, name):
    """Of a variant of a forward or backward."""
    one = part["variants"].get(name)
    return "-" if one is None else both(one["milliseconds"], one["idle"] and one["idle"]["milliseconds"])


def ratio_cell(part, key, name):
    return both(*(part["ratios"][when][key].get(name) for when in ("sustained", "idle")))


def parallel_title(case, full=False):
    tokens = f", {case['tokens']} tokens" if full or case["tokens"] != 16384 else ""
    return case_title(case) + tokens + (", one GPU" if case.get("world") == 1 else "")


def moved(part, name, kind=None):
    """Bytes that a rank moves, on average, and the least that it has to."""
    least = part["nvlink_bytes"]["least"]
    return [sum(one["pulled"] + one["pushed"]) / len(one["pulled"])
            for one in (part["nvlink_bytes"]["moved"][name], least[kind] if kind else least)]


def moved_cells(bytes_moved, least):
    """None where nothing has to be moved."""
    return [number(bytes_moved / 1e6, 0), number(bytes_moved / least if least else None, 2)]


def forward_times(case):
    names = (*merged.OURS, merged.GROUPED, merged.LOCAL, merged.UNFUSED, merged.DENSE)
    return [parallel_title(case), *(time_cell(case, name) for name in names)]


def forward_ratios(case):
    kept = both(*(case["ratios"][when]["kept_to_plan"] for when in ("sustained", "idle")))
    of_dense = [ratio_cell(case, "to_dense", name) for name in (merged.FIXED, merged.GROW)]
    return [parallel_title(case), *of_dense, kept, ratio_cell(case, "unfused_to", merged.FIXED),
            *moved_cells(*moved(case, merged.FIXED))]


BACKWARD_HEADER = ["backward, ms", "ours, kept", "grows", "redone", "grows", "all local", "unfused", "dense",
                   "dense, redone"]
BACKWARD_RATIOS = ["backward, ratios", "kept / dense", "redone / dense", "times faster", "fp32 / bf16", "added / bf16",
                   "NVLink MB", "of least"]


def backward_times(case):
    names, part = merged_backward, case["backward"]
    shown = (*names.OURS, names.LOCAL, names.UNFUSED, names.DENSE, names.DENSE_REDONE)
    return [parallel_title(case), *(time_cell(part, name) for name in shown)]


def backward_ratios(case):
    names, part = merged_backward, case["backward"]
    shown = (("to_dense", names.KEPT), ("to_dense", names.REDONE), ("unfused_to", names.KEPT),
             ("to_bf16", names.WIDE), ("to_bf16", names.ADDED))
    return [parallel_title(case), *(ratio_cell(part, *what) for what in shown),
            *moved_cells(*moved(part, names.KEPT, "kept"))]


STEP_HEADER = ["forward, forward with rows kept, backward, ms", "ours", "unfused", "dense", "of dense", "times faster"]


def step_cells(case):
    names, part = merged_backward, case["backward"]
    times = [time_cell(part, name) for name in (names.STEP, names.UNFUSED_STEP, names.DENSE_STEP)]
    return [parallel_title(case), *times, ratio_cell(part, "to_dense", names.STEP),
            ratio_cell(part, "unfused_to", names.STEP)]


def parallel_short(record):
    """Tables of times and of ratios for what was measured: forwards, backwards, steps."""
    forwards = [case for case in record["cases"] if "variants" in case]
    backwards = [case for case in record["cases"] if "backward" in case]
    steps = [case for case in backwards if merged_backward.STEP in case["backward"]["variants"]]
    kinds = [(FORWARD_HEADER, forward_times, forwards), (FORWARD_RATIOS, forward_ratios, forwards),
             (BACKWARD_HEADER, backward_times, backwards), (BACKWARD_RATIOS, backward_ratios, backwards),
             (STEP_HEADER, step_cells, steps)]
    return with_waits([aligned(header, list(map(cells, cases))) for header, cells, cases in kinds if cases], record)


VARIANT_HEADER = ["variant", "ms", "TFLOP/s", "of dense", "unfused / it", "ms after rest", "TFLOP/s", "of dense",
                  "unfused / it"]


def variant_cells(part, name):
    cells = [name]
    for when, one in (("sustained", part["variants"][name]), ("idle", part["variants"][name]["idle"])):
        ratios = part["ratios"][when]
        cells += [number(one and one["milliseconds"], 3), number(one and one["tflops"], 0),
                  number(ratios["to_dense"].get(name), 2), number(ratios["unfused_to"].get(name), 2)]
    return cells


def variants_in_full(part):
    return aligned(VARIANT_HEADER, [variant_cells(part, name) for name in part["variants"]])


def exposed(part):
    shown = [number(part["ratios"][when]["exposed_milliseconds"], 3) for when in ("sustained", "idle")]
    return f"communication that shows: {shown[0]} ms, after rest {shown[1]} ms"


def moved_text(bytes_moved, least):
    return f"NVLink: {bytes_moved / 1e6:.1f} MB a rank, least {least / 1e6:.1f}"


def phases(part, name):
    """Of rank 0."""
    milliseconds = part["reports"][name][0]["milliseconds"]
    return "rank 0, ms: " + ", ".join(f"{phase} {value:.3f}" for phase, value in milliseconds.items() if value > 0)


def forward_case(case):
    """Every variant, the communication that shows, and what the ranks computed and moved."""
    return "\n\n".join([
        f"{parallel_title(case, full=True)}: forward", variants_in_full(case),
        "; ".join([exposed(case), moved_text(*moved(case, merged.FIXED)), "rows: " + ", ".join(map(str, case["rows"])),
                   f"unfused sum: {case['unfused_sum']}", phases(case, merged.FIXED)]),
    ])


def backward_case(case):
    names, part = merged_backward, case["backward"]
    lines = [f"{name}: " + "; ".join([moved_text(*moved(part, name, kind)), phases(part, name)])
             for name, kind in ((names.KEPT, "kept"), (names.REDONE, "redone")) if name in part["reports"]]
    largest = max(value for of in part["differences"].values() for value in of.values())
    return "\n\n".join([
        f"{parallel_title(case, full=True)}: backward", variants_in_full(part),
        "\n".join(["; ".join([exposed(part), "rows: " + ", ".join(map(str, case["rows"])),
                              f"unfused sum: {part['unfused_sum']}",
                              f"largest relative difference to the unfused layer: {largest:.1e}"]), *lines]),
    ])


PARALLEL_CASES = {"forward": forward_case, "backward": backward_case}


def target_line(what, one):
    line = f"{what}: {one['name']}: {one['value']:.3f}, at most {one['most']}: {'met' if one['met'] else 'NOT MET'}"
    if "goal" in one:
        line += f"; goal {one['goal']}: {'met' if one['value'] <= one['goal'] else 'not yet'}"
    return line


def parallel_verdict(record):
    """The targets of the headline cases, one a line, and what there was no time for."""
    lines = []
    for case in record["cases"]:
        for what, part in ((case_title(case), case), (f"{case_title(case)}: backward", case.get("backward", {}))):
            lines += [target_line(what, one) for one in part.get("targets", [])]
    return "\n".join(lines + [f"left out for lack of time: {what}" for what in record.get("left_out", [])])
