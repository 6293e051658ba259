import Bytes
import Change
import TestSupport
import Testing

@Suite(.within(minutes: 5)) struct JSONRenderingTests {
    func json(_ text: String, _ oid: UInt32) -> String {
        var writer = ByteWriter()
        BuiltInType.rendering(of: oid).append(Array(text.utf8).span.bytes, to: &writer)
        return writer.bytes.text
    }

    @Test(
        arguments: [
            ("9223372036854775807", 20, "9223372036854775807"),
            ("-1.50", 1700, "-1.50"),
            ("12345678901234567890.123", 1700, "12345678901234567890.123"),
            ("NaN", 1700, "null"), ("Infinity", 701, "null"), ("-Infinity", 701, "null"),
            ("{1.50,NaN,-Infinity,NULL}", 1231, #"[1.50,"NaN","-Infinity",null]"#),
            ("0.1", 701, "0.1"), ("1e-07", 701, "0.0000001"), ("-1.5e-07", 701, "-0.00000015"),
            ("1.2345e+02", 701, "123.45"), ("1e+20", 701, "100000000000000000000"),
            ("t", 16, "true"), ("f", 16, "false"),
            ("2026-03-01 10:20:30.5", 1114, #""2026-03-01T10:20:30.5""#),
            ("2026-03-01 10:20:30.5+00", 1184, #""2026-03-01T10:20:30.5+00:00""#),
            ("0044-03-15 10:00:00+00 BC", 1184, #""0044-03-15T10:00:00+00:00 BC""#),
            ("infinity", 1184, #""infinity""#), ("-infinity", 1114, #""-infinity""#),
            ("2026-03-01", 1082, #""2026-03-01""#),
            (#"\x010203ff"#, 17, #""010203ff""#), (#"\x"#, 17, #""""#),
            (#"{"k": [1, null]}"#, 3802, #"{"k": [1, null]}"#),
            ("{\n  \"k\" : 1\n}", 114, #"{  "k" : 1}"#),
            ("a\"b\\c\nd\u{1}é🙂", 25, #""a\"b\\c\nd\u0001é🙂""#),
            ("", 25, #""""#),
            ("{1,NULL,3}", 1007, "[1,null,3]"),
            (#"{a,"b c","q\"u\\o","NULL",NULL,""}"#, 1009, #"["a","b c","q\"u\\o","NULL",null,""]"#),
            ("{{1,2},{3,4}}", 1007, "[[1,2],[3,4]]"),
            ("[0:1]={7,8}", 1007, "[7,8]"),
            ("{}", 1007, "[]"),
            (#"{"\\x01"}"#, 1001, #"["\\x01"]"#),
            (#"{"{\"a\": 1}"}"#, 3807, #"[{"a": 1}]"#),
            (#"{"2026-03-01 10:20:30+00"}"#, 1185, #"["2026-03-01T10:20:30+00:00"]"#),
            ("(1,1),(0,0)", 603, #""(1,1),(0,0)""#),
            ("{broken", 1007, #""{broken""#),
            ("1 day 02:00:00", 1186, #""1 day 02:00:00""#),
            ("16384", 26, #""16384""#),
        ] as [(String, UInt32, String)])
    func `writes a value as clients expect it`(text: String, oid: UInt32, expected: String) {
        #expect(json(text, oid) == expected)
    }

    /// Checks texts that PostgreSQL never writes: the result must be JSON for any text.
    @Test(
        arguments: [
            ("12abc", 20, #""12abc""#), ("1.", 1700, #""1.""#), ("01", 23, #""01""#), ("1,000", 1700, #""1,000""#),
            ("-", 20, #""-""#), ("", 20, #""""#), ("abc", 23, #""abc""#), ("1e", 701, #""1e""#),
            ("1e+", 701, #""1e+""#), ("1x2e5", 701, #""1x2e5""#), ("00e5", 701, #""00e5""#),
            ("1.2.3e5", 701, #""1.2.3e5""#), ("1e5x", 701, #""1e5x""#), ("1e+999", 701, #""1e+999""#),
            (#"2026-03-01 1"2"#, 1114, #""2026-03-01T1\"2""#), (#"2"026 1"#, 1114, #""2\"026T1""#),
            ("2026-03-01 1\n", 1184, #""2026-03-01T1\n""#), ("{1x}", 1007, #"["1x"]"#),
        ] as [(String, UInt32, String)])
    func `writes what PostgreSQL never writes as a string`(text: String, oid: UInt32, expected: String) {
        #expect(json(text, oid) == expected)
    }

    @Test func `a number keeps every digit`() {
        for text in ["0", "-0", "0.10", "-12.5", "9223372036854775808", "0.000"] { #expect(json(text, 1700) == text) }
        #expect(json("0e+5", 701) == "0")
        #expect(json("0.5e+1", 701) == "5")
        #expect(json("-0.05e+1", 701) == "-0.5")
    }

    @Test func `a double's largest and smallest values have every digit`() {
        let large = json("1.7976931348623157e+308", 701)
        #expect(large.count == 309 && large.hasPrefix("17976931348623157") && large.hasSuffix("000"))
        let small = json("5e-324", 701)
        #expect(small.hasPrefix("0.000") && small.hasSuffix("5") && small.count == 326)
    }

    @Test func `escapes wherever the special byte stands in a word`() {
        for position in 0..<40 {
            for special in ["\"", "\\", "\n", "\u{1f}"] {
                var text = String(repeating: "x", count: position) + special
                text += String(repeating: "é", count: 9)
                let escaped = ["\"": "\\\"", "\\": "\\\\", "\n": "\\n", "\u{1f}": "\\u001f"][special] ?? ""
                #expect(json(text, 25) == "\"" + text.replacing(special, with: escaped) + "\"")
            }
        }
    }

    // MARK: Types of the user's own

    private func json(_ text: String, _ rendering: ValueRendering) -> String {
        var writer = ByteWriter()
        rendering.append(Array(text.utf8).span.bytes, to: &writer)
        return writer.bytes.text
    }

    @Test(
        arguments: [
            (#""k"=>"v""#, #"{"k":"v"}"#), ("", "{}"), (#""a"=>"1", "b"=>NULL"#, #"{"a":"1","b":null}"#),
            (#""a\"b"=>"\\", ""=>"NULL""#, #"{"a\"b":"\\","":"NULL"}"#),
            (#""a=>, "=>"\"=>\", ""#, #"{"a=>, ":"\"=>\", "}"#),
            // None of these texts is an hstore.
            ("x", #""x""#), (#""a"=>"#, #""\"a\"=>""#), (#""a"=>"b","#, #""\"a\"=>\"b\",""#), (#""a\"#, #""\"a\\""#),
        ] as [(String, String)])
    func `an hstore is an object of strings`(text: String, expected: String) {
        #expect(json(text, .plain(.scalar(.hstore))) == expected)
    }

    @Test(
        arguments: [
            (#"(1,x,,f)"#, #"{"n":1,"t":"x","b":null,"z":false}"#),
            (#"(,"",\\x01,)"#, #"{"n":null,"t":"","b":"\\x01","z":null}"#),
            (#"(-5,"a ""b"" \\ (c),",,t)"#, #"{"n":-5,"t":"a \"b\" \\ (c),","b":null,"z":true}"#),
            // None of these texts is such a row.
            ("(1,x,)", #""(1,x,)""#), ("(1,x,,f,g)", #""(1,x,,f,g)""#), ("(1,x,,f", #""(1,x,,f""#), ("", #""""#),
            ("(1,x,,f) ", #""(1,x,,f) ""#), (#"(1,"x,,f)"#, #""(1,\"x,,f)""#), (#"(\"#, #""(\\""#), ("x", #""x""#),
        ] as [(String, String)])
    func `a composite is an object of its attributes`(text: String, expected: String) {
        let row = ValueRendering.composite([
            .init("n", .plain(.scalar(.integer))), .init("t", .plain(.scalar(.text))),
            .init("b", .plain(.scalar(.bytes))), .init("z", .plain(.scalar(.boolean))),
        ])
        #expect(json(text, row) == expected)
    }

    @Test func `rows within rows and arrays of them nest`() {
        let inner = ValueRendering.composite([
            .init("a", .plain(.array(of: .integer))), .init("h", .plain(.scalar(.hstore))),
        ])
        let outer = ValueRendering.composite([.init("id", .plain(.scalar(.integer))), .init("rows", .array(of: inner))])
        #expect(
            json(#"(7,"{""(\\""{1,NULL}\\"",)"",NULL}")"#, outer)
                == #"{"id":7,"rows":[{"a":[1,null],"h":null},null]}"#)
        #expect(json("{}", .array(of: inner)) == "[]")
        #expect(json("{(,),(,)}", .array(of: inner)) == #"["(",")","(",")"]"#)
        #expect(json(#"{"\\x01"}"#, .array(of: .plain(.scalar(.bytes)))) == #"["\\x01"]"#)
        #expect(json(#"{"\"k\"=>\"v\"",NULL}"#, .plain(.array(of: .hstore))) == #"[{"k":"v"},null]"#)
    }
}
