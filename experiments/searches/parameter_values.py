"""Where in its range, or among its choices, a parameter of a search has a value. Pure."""

from __future__ import annotations

import math

from experiments.searches.wishes import Parameter, Value


def value_at(parameter: Parameter, part: float) -> Value:
    """The value at this part, from 0 to below 1, of its range or its choices."""
    if parameter.choices:
        return parameter.choices[min(int(part * len(parameter.choices)), len(parameter.choices) - 1)]
    step = parameter.step or (1.0 if parameter.kind == "int" and not parameter.power else 0.0)
    if step:
        steps = math.floor((parameter.most - parameter.least) / step + 1e-9) + 1
        found = parameter.least + min(int(part * steps), steps - 1) * step
        found = round(found, 12)  # 0.001 + 17 * 0.002 is to read 0.035
    else:
        found = parameter.least + part * (parameter.most - parameter.least)
    found = parameter.power**found if parameter.power else found
    if parameter.kind == "int":
        return round(found)
    return _rounded(parameter, found) if parameter.digits else found


def _rounded(parameter: Parameter, value: float) -> float:
    """To its digits, and never out of its range."""
    least, most = (parameter.power**end if parameter.power else end for end in (parameter.least, parameter.most))
    return min(max(float(f"{value:.{parameter.digits}g}"), least), most)


def part_of(parameter: Parameter, value: Value) -> float:
    """Where, from 0 to 1, `value_at` has the value of a range: it gives that again, or where whole numbers are rounded one beside it."""
    found = float(value)
    if parameter.power and parameter.power != 1:
        found = math.log(max(found, 1e-300), parameter.power)
    return min(1.0, max(0.0, (found - parameter.least) / ((parameter.most - parameter.least) or 1.0)))


def as_text(parameter: Parameter) -> str:
    """As people write it: "0.001..0.1 log", "1..4", "16, 32"."""
    if parameter.choices:
        return ", ".join(f'"{each}"' if "," in str(each) else str(each) for each in parameter.choices)
    ends = [parameter.power**end if parameter.power else end for end in (parameter.least, parameter.most)]
    shape = " log" if parameter.power else f" step {parameter.step:.12g}" if parameter.step else ""
    return "..".join(f"{end:.12g}" for end in ends) + shape
