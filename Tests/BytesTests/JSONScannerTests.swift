import Bytes
import TestSupport
import Testing

/// Returns all tokens of a text, each with its own text if it has one.
private func tokens(_ text: [UInt8], depth: Int = 32) throws(ByteError) -> [String] {
    var scanner = JSONScanner(text.span.bytes, maximumDepth: depth)
    var all: [String] = []
    while true {
        let token = try scanner.next()
        switch token {
        case .end: return all
        case .name, .string: all.append("\(token) \(scanner.text)")
        case .number: all.append("number \(scanner.tokenBytes.text)")
        default: all.append("\(token)")
        }
    }
}

private func tokens(_ text: String, depth: Int = 32) throws(ByteError) -> [String] {
    try tokens(Array(text.utf8), depth: depth)
}

@Suite(.within(minutes: 5)) struct JSONScannerTests {
    @Test func `reads every kind of token`() throws {
        #expect(
            try tokens(#" {"a" : [1, -0.5e+3, true,false ,null], "b":{} ,"c":[ ], "":"x"} "#) == [
                "beginObject", "name a", "beginArray", "number 1", "number -0.5e+3", "bool(true)", "bool(false)",
                "null",
                "endArray", "name b", "beginObject", "endObject", "name c", "beginArray", "endArray", "name ",
                "string x",
                "endObject",
            ])
        #expect(try tokens("0") == ["number 0"])
    }

    @Test func `undoes every escape`() throws {
        #expect(
            try tokens(#""\"\\\/\b\f\n\r\t\u0041\u00e9\u20AC\ud83d\ude00-é€😀""#)
                == ["string \"\\/\u{8}\u{c}\n\r\tAé€😀-é€😀"])
        #expect(try tokens(#""\u0000""#) == ["string \0"])
    }

    @Test(arguments: [
        "", " ", "{", "}", "[", "]", "[1", "[1,", "[1,]", "[,1]", "{\"a\"}", "{\"a\":}", "{\"a\":1,}", "{a:1}", "{1:1}",
        "[1}", "{\"a\":1]", "01", "-", "+1", "1.", ".5", "1e", "1e+", "0x1", "NaN", "tru", "nulll", "True", "1 2",
        "[] []",
        "\"", "\"\\\"", "\"\\x\"", "\"\\u12\"", "\"\\u12g4\"", "\"\\ud800\"", "\"\\ud800x\"", "\"\\ud800\\n\"",
        "\"\\ud800\\ud800\"", "\"\\udc00\"", "\"\n\"", "\"\t\"", "'a'", "// 1", "\u{feff}1",
    ])
    func `refuses what is not JSON`(text: String) {
        #expect(throws: ByteError.self) { try tokens(text) }
    }

    @Test(
        arguments: [
            [0x80], [0xc0, 0x80], [0xc1, 0xbf], [0xe0, 0x9f, 0x80], [0xed, 0xa0, 0x80], [0xf0, 0x8f, 0x80, 0x80],
            [0xf4, 0x90, 0x80, 0x80], [0xf5, 0x80, 0x80, 0x80], [0xe2, 0x82], [0xff],
        ] as [[UInt8]])
    func `refuses what is not UTF-8`(bytes: [UInt8]) {
        #expect(throws: ByteError.self) { try tokens([0x22] + bytes + [0x22]) }
    }

    @Test func `what is special in a string is seen wherever it stands`() throws {
        for before in 0..<18 {
            for after in 0..<18 {
                func text(_ special: [UInt8]) -> [UInt8] {
                    [0x22] + Array(repeating: 0x61, count: before) + special + Array(repeating: 0x7e, count: after) + [
                        0x22
                    ]
                }
                let plain = (String(repeating: "a", count: before), String(repeating: "~", count: after))
                #expect(try tokens(text([])).first == "string \(plain.0)\(plain.1)")
                #expect(try tokens(text(Array("é\\n".utf8))).first == "string \(plain.0)é\n\(plain.1)")
                for refused in [[0x1f], [0x22], [0x5c, 0x78], [0xff], [0x80], [0x00]] as [[UInt8]] {
                    #expect(throws: ByteError.self) { try tokens(text(refused)) }
                }
            }
        }
    }

    @Test func `refuses more levels than allowed`() throws {
        func nested(_ levels: Int) -> String {
            String(repeating: "[", count: levels) + String(repeating: "]", count: levels)
        }
        #expect(try tokens(nested(32)).count == 64)
        #expect(throws: ByteError.self) { try tokens(nested(33)) }
        #expect(try tokens(nested(64), depth: 64).count == 128)
        #expect(throws: ByteError.self) { try tokens(nested(100_000), depth: 64) }
    }

    @Test func `skips values and reads whole numbers`() throws {
        let text = Array(#"{"skip":[{"a":[1]},2],"number":-129,"large":18446744073709551615}"#.utf8)
        var scanner = JSONScanner(text.span.bytes)
        _ = try scanner.next()
        _ = try scanner.next()
        try scanner.skip(scanner.next())
        // The macro cannot use a borrowing value, so each result is stored first.
        let name = try scanner.next()
        let isNumber = scanner.equals("number")
        #expect(name == .name && isNumber)
        _ = try scanner.next()
        let small = (scanner.integer(Int8.self), scanner.integer(Int16.self), scanner.integer(UInt64.self))
        #expect(small == (nil, -129, nil))
        _ = try scanner.next()
        _ = try scanner.next()
        let large = (scanner.integer(UInt64.self), scanner.integer(Int64.self))
        #expect(large == (UInt64.max, nil))
    }

    /// Checks that strings of our writer are read back, and that a changed text is read or refused, but does no harm.
    @Test(arguments: seeds(20)) func `reads what was written and survives every mutation`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        for _ in 0..<50 {
            let scalars = (0..<Int.random(in: 0...40, using: &random)).compactMap { _ in
                Unicode.Scalar(
                    UInt32.random(in: 0...0x10ffff, using: &random) >> UInt32.random(in: 0...20, using: &random))
            }
            let string = String(String.UnicodeScalarView(scalars))
            var writer = ByteWriter()
            writer.append("{\"k\":[1.5,")
            JSONText.appendString(string, to: &writer)
            writer.append(",null]}")
            #expect(try tokens(writer.bytes.copied())[4] == "string \(string)")
            for _ in 0..<50 {
                var mutant = writer.bytes.copied()
                for _ in 0...Int.random(in: 0...2, using: &random) {
                    let at = Int.random(in: 0..<mutant.count, using: &random)
                    switch Int.random(in: 0...2, using: &random) {
                    case 0: mutant[at] = UInt8.random(in: 0...255, using: &random)
                    case 1: mutant.insert(Array("\"\\{}[],:u0".utf8).randomElement(using: &random) ?? 0, at: at)
                    default: mutant.removeSubrange(at...)
                    }
                    if mutant.isEmpty { break }
                }
                // Every token that the scanner reads has a text.
                if let read = try? tokens(mutant) { #expect(read.allSatisfy { !$0.isEmpty }) }
            }
        }
    }
}
