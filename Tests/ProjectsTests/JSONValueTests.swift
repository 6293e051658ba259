import Bytes
import TestSupport
import Testing

@testable import Projects

@Suite(.within(minutes: 5)) struct JSONValueTests {
    @Test(arguments: [
        "null", "true", "-0.10e5", #""a\"\\\n""#, "[]", "{}", #"{"a":[1,{"b":null}],"c":"d"}"#,
        "123456789012345678901234567890.5",
    ])
    func `writes what it read`(text: String) throws {
        #expect(try json(text).text == text)
    }

    @Test(arguments: ["", "{", "[1,]", "{} {}", #"{"a"}"#, "nul", "[[[[[[]]]]]]"])
    func `refuses what is no JSON, or too deep`(text: String) {
        #expect(throws: ByteError.self) { try JSONValue.parse(Array(text.utf8), maximumDepth: 5) }
    }

    @Test func `takes the last value of a name`() throws {
        #expect(try json(#"{"a":1,"b":2,"a":3}"#) == json(#"{"b":2,"a":3}"#))
    }

    @Test func `refuses an object with too many members`() {
        let members = (0..<1001).map { "\"\($0)\":0" }.joined(separator: ",")
        #expect(throws: ByteError.self) { try json("{\(members)}") }
    }

    @Test func `tells names by their bytes`() throws {
        let object = try #require(try json(#"{"\u00e9":1,"e\u0301":2}"#).object)
        #expect(object["\u{e9}"] == .number(1))
        #expect(object["e\u{301}"] == .number(2))
        #expect(object.members.count == 2)
    }
}
