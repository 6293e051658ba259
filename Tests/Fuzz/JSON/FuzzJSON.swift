import Bytes
import Change
import FuzzSupport

@_cdecl("LLVMFuzzerInitialize")
public func initialize(_ count: UnsafeMutablePointer<CInt>, _ arguments: UnsafeRawPointer) -> CInt {
    writeSeeds(
        seeds.compactMap { text, type in
            types.firstIndex(of: type).map { [UInt8($0)] + Array(text.utf8) }
        })
    return 0
}

/// Fuzz target of JSON values. Input: a byte that selects a PostgreSQL type, then a value's text. The type `json` is
/// left out, because PostgreSQL has checked its values and the hub does not change them.
@_cdecl("LLVMFuzzerTestOneInput")
public func test(_ start: UnsafePointer<UInt8>?, _ count: Int) -> CInt {
    let bytes = input(start, count)
    guard let pick = bytes.first else { return 0 }
    let text = Array(bytes.dropFirst())
    var writer = ByteWriter()
    BuiltInType.rendering(of: types[Int(pick) % types.count]).append(text.span.bytes, to: &writer)
    var check = JSONCheck(writer.copied())
    precondition(check.isOneValue(), "not JSON: \(writer.bytes.text)")
    return 0
}

private let types: [UInt32] = [16, 20, 1700, 701, 17, 25, 1114, 1184, 1007, 1231, 1000, 1001, 1009, 1115, 1185, 2951]

private let seeds: [(String, UInt32)] = [
    ("t", 16), ("-42", 20), ("1.50", 1700), ("NaN", 1700), ("1.5e-07", 701), ("-Infinity", 701), ("\\x01ff", 17),
    ("a\"b\\c\n\u{1}é", 25), ("2026-03-01 10:20:30.5", 1114), ("0044-03-15 10:00:00+00 BC", 1184), ("infinity", 1184),
    ("{1,NULL,3}", 1007), ("[0:1]={7,8}", 1007), ("{{1,2},{3,4}}", 1231), ("{t,f}", 1000), ("{\"\\\\x01\"}", 1001),
    ("{a,\"b c\",\"q\\\"u\\\\o\",\"NULL\",NULL,\"\"}", 1009), ("{\"2026-03-01 10:20:30+00\"}", 1185),
]

/// Checker of RFC 8259's grammar. It allows no line breaks, and does not check UTF-8, which PostgreSQL guarantees.
private struct JSONCheck {
    private let bytes: [UInt8]
    private var at = 0

    init(_ bytes: [UInt8]) { self.bytes = bytes }

    mutating func isOneValue() -> Bool { value() && at == bytes.count }

    private var next: UInt8? { at < bytes.count ? bytes[at] : nil }

    private mutating func take(_ character: Character) -> Bool {
        guard next == character.asciiValue else { return false }
        at += 1
        return true
    }

    private mutating func value() -> Bool {
        switch next {
        case UInt8(ascii: "\""): string()
        case UInt8(ascii: "["): array()
        case UInt8(ascii: "t"): word("true")
        case UInt8(ascii: "f"): word("false")
        case UInt8(ascii: "n"): word("null")
        default: number()
        }
    }

    private mutating func word(_ word: String) -> Bool {
        guard bytes[at...].starts(with: word.utf8) else { return false }
        at += word.utf8.count
        return true
    }

    private mutating func array() -> Bool {
        at += 1
        if take("]") { return true }
        repeat { guard value() else { return false } } while take(",")
        return take("]")
    }

    private mutating func string() -> Bool {
        at += 1
        while let byte = next, byte >= 0x20 {
            at += 1
            if byte == UInt8(ascii: "\"") { return true }
            if byte == UInt8(ascii: "\\"), !escape() { return false }
        }
        return false
    }

    private mutating func escape() -> Bool {
        guard let byte = next else { return false }
        at += 1
        if byte != UInt8(ascii: "u") { return "\"\\/bfnrt".utf8.contains(byte) }
        guard at + 4 <= bytes.count, bytes[at..<at + 4].allSatisfy({ Hex.value($0) != nil }) else { return false }
        at += 4
        return true
    }

    private mutating func number() -> Bool {
        _ = take("-")
        if !take("0"), !digits() { return false }
        return !take(".") || digits()
    }

    private mutating func digits() -> Bool {
        let start = at
        while let byte = next, (48...57).contains(byte) { at += 1 }
        return at > start
    }
}
