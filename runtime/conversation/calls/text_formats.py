"""Regular expressions of the formats that a JSON schema may give for a text. Knows text alone."""

from __future__ import annotations


def times() -> dict[str, str]:
    """Return the formats of dates, times and durations."""
    day = r"((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))"
    hour = "([01][0-9]|2[0-3]):[0-5][0-9]"
    date, time = f"[0-9]{{4}}-{day}", rf"{hour}:[0-5][0-9](\.[0-9]{{1,9}})?(Z|[+-]{hour})"
    clock = "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)"
    duration = f"P(([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)({clock})?|{clock}|[0-9]+W)"
    return {"date": date, "time": time, "date-time": f"{date}T{time}", "duration": duration}


def addresses() -> dict[str, str]:
    """Return the formats of names and addresses in a network."""
    label, name, part = "[a-zA-Z0-9]{1,20}(-[a-zA-Z0-9]{1,20}){0,2}", "[a-zA-Z0-9_+-]{1,30}", "[0-9a-fA-F]{1,4}"
    host, byte = rf"{label}(\.{label}){{0,3}}", "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
    shortened = "|".join(f"({part}:){{{n}}}(:{part}){{1,{7 - n}}}" for n in range(1, 7))
    return {
        "hostname": host,
        "email": rf"{name}(\.{name}){{0,1}}@{host}",
        "ipv4": rf"{byte}(\.{byte}){{3}}",
        "ipv6": f"({part}:){{7}}{part}|{shortened}|({part}:){{1,7}}:|:(:{part}){{1,7}}|::",
        "uri": uri(host),
    }


def uri(host: str) -> str:
    """Return the format of an address of a resource."""
    each = r"([a-zA-Z0-9._~!$&'()*+,;=:@-]|%[0-9a-fA-F]{2})"
    path = f"(//{host}(:[0-9]{{1,4}})?(/{each}*)*|/?({each}+(/{each}*)*)?)"
    return rf"[a-zA-Z][a-zA-Z0-9+.-]*:{path}(\?({each}|[/?])*)?(#({each}|[/?])*)?"


FORMATS = times() | addresses() | {"uuid": "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"}
