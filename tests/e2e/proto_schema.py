"""Checks JSON answers against their schema: the messages of proto/*.proto."""
import re

from emulated_job import ROOT

SCALARS = {"string": str, "bytes": str, "bool": bool, "double": (int, float), "float": (int, float)}
INTEGERS = {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64"}
FIELD = re.compile(r"(repeated |optional )?(map<\s*\w+,\s*([\w.]+)>|[\w.]+) (\w+) = \d+")


def read_schema():
    """Returns {message: {field: (is_repeated, is_map, type)}} and {enum: names} of all files."""
    messages, enums = {}, {}
    for path in sorted((ROOT / "proto").glob("*.proto")):
        text = re.sub(r"//[^\n]*", "", path.read_text())
        inside = []
        for token in re.findall(r"(?:message|enum|oneof|service|rpc)\b[^{;]*\{|\}|[^{};]+;", text):
            token = token.strip()
            if token == "}":
                inside.pop()
                continue
            if token.endswith("{"):
                kind, _, name = token[:-1].strip().partition(" ")
                inside.append((kind, name.strip()))
                if kind == "message":
                    messages[name.strip()] = {}
                elif kind == "enum":
                    enums[name.strip()] = set()
            elif inside and inside[-1][0] == "enum":
                enums[inside[-1][1]].add(token.split(" ")[0])
            elif inside and (field := FIELD.match(token)):
                message = next(name for kind, name in reversed(inside) if kind == "message")
                label, kind, value, name = field.groups()
                messages[message][name] = (label == "repeated ", value is not None, (value or kind).split(".")[-1])
    return messages, enums


MESSAGES, ENUMS = read_schema()


def check_value(value, kind, where):
    if kind in MESSAGES:
        assert isinstance(value, dict), f"{where} is no object"
        check_message(value, kind, where)
    elif kind in ENUMS:
        assert value in ENUMS[kind], f"{where} = {value!r} is no name of {kind}"
    elif kind in INTEGERS:
        assert isinstance(value, int) and not isinstance(value, bool), f"{where} = {value!r} is no integer"
    else:
        assert isinstance(value, SCALARS[kind]), f"{where} = {value!r} is no {kind}"
        assert kind == "bool" or not isinstance(value, bool), f"{where} = {value!r} is no {kind}"


def check_message(value, message, where="answer"):
    """Fails unless `value` has only fields of the message, each with its type, and `schema` if the message has it."""
    fields = MESSAGES[message]
    for name, inner in value.items():
        place = f"{where}.{name}"
        assert name in fields, f"{place} is no field of {message}"
        is_repeated, is_map, kind = fields[name]
        if is_repeated:
            assert isinstance(inner, list), f"{place} is no list"
            for k, element in enumerate(inner):
                check_value(element, kind, f"{place}[{k}]")
        elif is_map:
            assert isinstance(inner, dict), f"{place} is no object"
            for key, element in inner.items():
                check_value(element, kind, f"{place}[{key}]")
        else:
            check_value(inner, kind, place)
    if where == "answer":
        assert value.get("schema") == 1, f"schema = {value.get('schema')}"
