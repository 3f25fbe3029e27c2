"""Tables of the GPU benchmarks' records, in Markdown that is readable as it stands."""


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
    return (f"{machine['gpu']}, driver {machine['driver']}, PyTorch {machine['torch']}, {record['date'][:10]}, commit "
            f"{record['commit']}; medians of {record['rounds']} rounds of {method['warm_ms']:.0f} ms to warm and "
            f"{method['timed_ms']:.0f} ms timed, in turn; {state(record)}.")


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
