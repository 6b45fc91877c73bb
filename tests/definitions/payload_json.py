"""What Python's protobuf makes of messages of kinds.proto, for test_payload_json.

payload_json.py FOLDER each            every field alone, with each of its extreme values
payload_json.py FOLDER random SEED N   N random messages
payload_json.py FOLDER pieces SEED N   N times two random messages, one behind the other
payload_json.py FOLDER numbers SEED N  N lists of random floating point numbers
    Lines of: type, bytes, the bytes as they are written anew, JSON.
payload_json.py FOLDER read            JSON texts from stdin, one a line
    Lines of: the bytes, or "-" when the text is refused.

FOLDER has what protoc --python_out made. Bytes are in hexadecimal, columns separated by tabs.
"""
import json
import random
import struct
import sys

sys.path.insert(0, sys.argv[1])
import kinds_pb2  # noqa: E402
import kinds_old_pb2  # noqa: E402
from google.protobuf import duration_pb2, empty_pb2, json_format, struct_pb2  # noqa: E402
from google.protobuf import timestamp_pb2, wrappers_pb2  # noqa: E402
from google.protobuf.descriptor import FieldDescriptor as F  # noqa: E402

INT32 = [0, 1, -1, 2**31 - 1, -(2**31), 12345]
INT64 = INT32 + [2**63 - 1, -(2**63), 2**53 + 1, -(2**53) - 1]
UINT32 = [0, 1, 2**32 - 1, 2**31]
UINT64 = UINT32 + [2**64 - 1, 2**63, 2**53 + 1]
DOUBLE = [0.0, -0.0, 1.0, -1.5, 0.1, 1e15, 1e16, 123456789012345678.0, 1e-4, 1e-5, 1.25e-7, 1e22,
          1e23, 5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, 2.0**-44, 2.0**-1074,
          9007199254740993.0, 0.30000000000000004, 100.0, float('inf'), float('-inf'),
          float('nan')]
FLOAT = [0.0, -0.0, 1.0, -1.5, 0.1, 16777216.0, 16777217.0, 1e16, 3.4028234663852886e38, 1.4e-45,
         1.1754943508222875e-38, 1e-5, 1e10, 123456.789, float('inf'), float('-inf'),
         float('nan')]
TEXT = ['', 'a', 'Zür\u00e4', '"\\/', '\b\t\n\v\f\r', '\0', '\x1f\x7f\u0080\u2028', '\U0001f600',
        '</script>', '{"a":1}', '@type']
BYTES = [b'', b'a', b'ab', b'abc', bytes(range(256)), b'\xff\xfe', b'\0']
PATHS = ['a', 'a_b', 'long_name.other_one', 'x.y.z', 'a1_b', 'foo']
KEYS = ['', 'a', 'b', 'aa', 'Ä', 'z "', '\n', '10', '9', '\U0001f600', '\uffff']


def values_of(field):
    kinds = F
    return {
        kinds.TYPE_DOUBLE: DOUBLE, kinds.TYPE_FLOAT: FLOAT, kinds.TYPE_INT64: INT64,
        kinds.TYPE_UINT64: UINT64, kinds.TYPE_INT32: INT32, kinds.TYPE_FIXED64: UINT64,
        kinds.TYPE_FIXED32: UINT32, kinds.TYPE_BOOL: [False, True], kinds.TYPE_STRING: TEXT,
        kinds.TYPE_BYTES: BYTES, kinds.TYPE_UINT32: UINT32, kinds.TYPE_SFIXED32: INT32,
        kinds.TYPE_SFIXED64: INT64, kinds.TYPE_SINT32: INT32, kinds.TYPE_SINT64: INT64,
    }.get(field.type) or enum_values(field)


def enum_values(field):
    declared = [value.number for value in field.enum_type.values]
    if field.enum_type.file.syntax == 'proto2' or field.enum_type.name == 'NullValue':
        return declared
    return declared + [77, -77, 2**31 - 1, -(2**31)]


def is_map(field):
    return (field.type == F.TYPE_MESSAGE and field.message_type.has_options
            and field.message_type.GetOptions().map_entry)


# ---- random messages ----

def scalar(field, rng):
    if field.type == F.TYPE_DOUBLE and rng.random() < 0.5:
        return real(rng, 'd', 'Q', 64)
    if field.type == F.TYPE_FLOAT and rng.random() < 0.5:
        return real(rng, 'f', 'I', 32)
    if field.type == F.TYPE_STRING and rng.random() < 0.5:
        return ''.join(rng.choice(TEXT + KEYS) for _ in range(rng.randrange(4)))
    return rng.choice(values_of(field))


def real(rng, of, bits, width):
    """Not a number is written in one way only, so the many ways of it are no good here."""
    value = struct.unpack(of, struct.pack(bits, rng.getrandbits(width)))[0]
    return 0.5 if value != value else value


def fill_time(message, rng):
    message.seconds = rng.choice([0, 1, -62135596800, 253402300799, 1772460311,
                                  rng.randrange(-62135596800, 253402300800)])
    message.nanos = rng.choice([0, 1, 999999999, 250000000, 1000, rng.randrange(10**9)])


def fill_duration(message, rng):
    sign = rng.choice([1, -1])
    message.seconds = sign * rng.choice([0, 1, 315576000000, rng.randrange(315576000000)])
    message.nanos = sign * rng.choice([0, 1, 999999999, 500000000, 7000, rng.randrange(10**9)])


def fill_value(message, rng, depth):
    kind = rng.randrange(6 if depth > 0 else 4)
    if kind == 0:
        message.null_value = 0
    elif kind == 1:
        message.number_value = rng.choice([x for x in DOUBLE if x - x == 0])
    elif kind == 2:
        message.string_value = rng.choice(TEXT)
    elif kind == 3:
        message.bool_value = rng.random() < 0.5
    elif kind == 4:
        message.struct_value.SetInParent()
        fill_struct(message.struct_value, rng, depth - 1)
    else:
        message.list_value.SetInParent()
        for _ in range(rng.randrange(3)):
            fill_value(message.list_value.values.add(), rng, depth - 1)


def fill_struct(message, rng, depth):
    for _ in range(rng.randrange(4)):
        fill_value(message.fields[rng.choice(KEYS)], rng, depth)


def fill_any(message, rng, depth):
    inner = rng.choice([kinds_pb2.Small, kinds_old_pb2.Old, timestamp_pb2.Timestamp,
                        duration_pb2.Duration, wrappers_pb2.Int64Value, struct_pb2.Struct,
                        struct_pb2.Value, empty_pb2.Empty])()
    fill(inner, rng, depth)
    message.Pack(inner, rng.choice(['type.googleapis.com/', 'a/b/']), deterministic=True)


def fill(message, rng, depth):
    name = message.DESCRIPTOR.full_name
    if name == 'google.protobuf.Timestamp':
        fill_time(message, rng)
    elif name == 'google.protobuf.Duration':
        fill_duration(message, rng)
    elif name == 'google.protobuf.FieldMask':
        message.paths.extend(rng.sample(PATHS, rng.randrange(4)))
    elif name == 'google.protobuf.Value':
        fill_value(message, rng, depth)
    elif name == 'google.protobuf.Struct':
        fill_struct(message, rng, depth)
    elif name == 'google.protobuf.ListValue':
        for _ in range(rng.randrange(3)):
            fill_value(message.values.add(), rng, depth)
    elif name == 'google.protobuf.Any':
        fill_any(message, rng, depth - 1)
    else:
        fill_fields(message, rng, depth)


def fill_fields(message, rng, depth):
    often = 0.2 if len(message.DESCRIPTOR.fields) > 20 else 0.6
    for field in message.DESCRIPTOR.fields:
        is_message = field.cpp_type == F.CPPTYPE_MESSAGE
        if field.label == F.LABEL_REQUIRED:
            setattr(message, field.name, scalar(field, rng))
        elif field.type == F.TYPE_GROUP or rng.random() > often or (is_message and depth <= 0):
            continue
        elif is_map(field):
            fill_map(getattr(message, field.name), field, rng, depth)
        elif field.label == F.LABEL_REPEATED:
            for _ in range(rng.randrange(4)):
                if is_message:
                    fill(getattr(message, field.name).add(), rng, depth - 1)
                else:
                    getattr(message, field.name).append(scalar(field, rng))
        elif is_message:
            getattr(message, field.name).SetInParent()
            fill(getattr(message, field.name), rng, depth - 1)
        else:
            setattr(message, field.name, scalar(field, rng))


def fill_map(entries, field, rng, depth):
    key, value = field.message_type.fields
    for _ in range(rng.randrange(5)):
        name = rng.choice(KEYS) if key.type == F.TYPE_STRING else scalar(key, rng)
        if value.cpp_type == F.CPPTYPE_MESSAGE:
            entries[name].Clear()
            fill(entries[name], rng, depth - 1)
        else:
            entries[name] = scalar(value, rng)


# ---- each field alone ----

def each():
    rng = random.Random(1)
    for field in kinds_pb2.Kinds.DESCRIPTOR.fields:
        if is_map(field) or field.cpp_type == F.CPPTYPE_MESSAGE:
            for depth in range(6):
                message = kinds_pb2.Kinds()
                if is_map(field):
                    fill_map(getattr(message, field.name), field, rng, 3)
                elif field.label == F.LABEL_REPEATED:
                    for _ in range(depth):
                        fill(getattr(message, field.name).add(), rng, 3)
                else:
                    getattr(message, field.name).SetInParent()
                    if depth or field.message_type.name in ('Old', 'Value'):  # the empty Value is null
                        fill(getattr(message, field.name), rng, 3)
                yield message
            continue
        for value in values_of(field):
            message = kinds_pb2.Kinds()
            if field.label == F.LABEL_REPEATED:
                getattr(message, field.name).extend([value, values_of(field)[0], value])
            else:
                setattr(message, field.name, value)
            yield message
    yield kinds_pb2.Kinds()


def numbers(rng):
    message = kinds_pb2.Kinds()
    for _ in range(100):
        message.r_double.append(real(rng, 'd', 'Q', 64))
        message.r_double.append(round(rng.uniform(-1e6, 1e6), rng.randrange(8)))
        message.r_double.append(2.0 ** rng.randrange(-1074, 1024))
        message.r_double.append(rng.randrange(1, 2**52) * 5e-324)
        message.r_double.append(float(rng.randrange(2**60)))
        message.r_float.append(real(rng, 'f', 'I', 32))
        message.r_float.append(round(rng.uniform(-1e3, 1e3), rng.randrange(6)))
        message.r_float.append(2.0 ** rng.randrange(-149, 128))
    return message


# ---- what it makes of them ----

class Printer(json_format._Printer):
    """As MessageToJson, but for the entries of maps: by key, since Python leaves their order open."""

    def _RegularMessageToJsonObject(self, message, js):
        super()._RegularMessageToJsonObject(message, js)
        for field, value in message.ListFields():
            if is_map(field):
                entries = js[field.json_name]
                keys = [str(key).lower() if isinstance(key, bool) else str(key)
                        for key in sorted(value, key=sort_key)]
                js[field.json_name] = {key: entries[key] for key in keys}
        return js

    def _StructMessageToJsonObject(self, message):
        entries = super()._StructMessageToJsonObject(message)
        return {key: entries[key] for key in sorted(entries, key=sort_key)}


def sort_key(key):
    return key.encode() if isinstance(key, str) else key


def to_json(message):
    text = json.dumps(Printer()._MessageToJsonObject(message), ensure_ascii=False,
                      separators=(',', ':'))
    again = json_format.MessageToJson(message, indent=None, ensure_ascii=False)
    assert json.loads(text) == json.loads(again)
    return text


def tell(data, message):
    print(message.DESCRIPTOR.full_name, data.hex(),
          message.SerializeToString(deterministic=True).hex(), to_json(message), sep='\t')


def tell_random(seed, count):
    rng = random.Random(seed)
    for i in range(count):
        message = (kinds_old_pb2.Old if i % 8 == 0 else kinds_pb2.Kinds)()
        fill(message, rng, 3)
        tell(message.SerializeToString(), message)


def tell_pieces(seed, count):
    """The type of one Any and the value of another make none, nor do the seconds and the nanos of
    two Durations: those are left out."""
    rng = random.Random(seed)
    left_out = 0
    for _ in range(count):
        data = b''
        for _ in range(2):
            message = kinds_pb2.Kinds()
            fill(message, rng, 2)
            for name in ('w_any', 'again'):
                message.ClearField(name)
            data += message.SerializeToString()
        message = kinds_pb2.Kinds.FromString(data)
        try:
            to_json(message)
        except (ValueError, json_format.Error):
            left_out += 1
            continue
        tell(data, message)
    assert left_out < count / 2


def read():
    for line in sys.stdin:
        try:
            message = json_format.Parse(line, kinds_pb2.Kinds())
            print(message.SerializeToString(deterministic=True).hex())
        except json_format.ParseError:
            print('-')


def main():
    sys.stdout.reconfigure(encoding='utf-8')
    sys.stdin.reconfigure(encoding='utf-8')
    what = sys.argv[2]
    if what == 'each':
        for message in each():
            tell(message.SerializeToString(), message)
    elif what == 'random':
        tell_random(int(sys.argv[3]), int(sys.argv[4]))
    elif what == 'pieces':
        tell_pieces(int(sys.argv[3]), int(sys.argv[4]))
    elif what == 'numbers':
        rng = random.Random(int(sys.argv[3]))
        for _ in range(int(sys.argv[4])):
            message = numbers(rng)
            tell(message.SerializeToString(), message)
    else:
        read()


main()
