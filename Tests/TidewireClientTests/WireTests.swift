import TestSupport
import Testing

@testable import TidewireClient

@Suite(.within(minutes: 5)) struct WireTests {
    @Test func `numbers keep their digits`() throws {
        let value = try JSONValue(parsing: "[9007199254740993, 12345678901234567890.1230, -0.5e-3]")
        #expect(
            value == .array([.number("9007199254740993"), .number("12345678901234567890.1230"), .number("-0.5e-3")]))
    }

    @Test func `what is written is read as the same`() throws {
        let value: JSONValue = [
            "text": "quote \" back \\ line \n tab \t null \u{0} é 日本 😀", "list": [1, nil, true, [:], []], "": "",
        ]
        #expect(try JSONValue(parsing: value.json) == value)
    }

    @Test func `escapes are characters`() throws {
        #expect(try JSONValue(parsing: #""\u00e9\ud83d\ude00\/\ud83d""#) == .string("é😀/\u{fffd}"))
    }

    @Test(arguments: [
        "", "[", "[1,]", "{\"a\"}", "{\"a\":1,}", "nul", "01x", "\"", "\"\\x\"", "1 2", "-", "1.", "1e", "{1:2}",
    ])
    func `what is no JSON is refused`(text: String) {
        #expect(throws: JSONValue.ParsingError.self) { try JSONValue(parsing: text) }
    }

    @Test func `a text that goes too deep is refused and ends nothing`() {
        let deep = String(repeating: "[", count: 100_000)
        #expect(throws: JSONValue.ParsingError.self) { try JSONValue(parsing: deep) }
    }

    /// Checks that cached parts of a message do not affect a later message, in any order, whether the messages are
    /// valid or not.
    @Test(arguments: seeds(100)) func `a message is read the same whatever was read before it`(seed: Seed) throws {
        var chance = SeededRandom(seed: seed)
        var said = PreviousColumns()
        let columns: [JSONValue] = [
            [["name": "id", "type": "uuid"]], [["name": "id", "type": "uuid"], ["name": "n", "type": "int8"]],
            [["name": "id", "type": "uuid2"]], [], "x", nil, ["columns": [1]], [["columns": [2]]], 1, 12,
        ]
        for _ in 0..<40 {
            let data: JSONValue = [
                "columns": chance.pick(columns), "record": ["columns": chance.pick(columns), "z": 1],
            ]
            var bytes = Array(data.json.utf8)
            if chance.pick([true, false, false]) { bytes.removeLast(Int.random(in: 1..<bytes.count, using: &chance)) }
            let alone = Result { try JSONValue(parsing: bytes) }
            let behind = Result { try JSONValue(parsing: bytes, &said) }
            #expect((try? behind.get()) == (try? alone.get()))
        }
    }

    @Test func `messages are arrays of five`() throws {
        let message = ClientMessage(joinRef: "1", ref: "2", topic: "realtime:a", event: "phx_leave")
        #expect(message.text == #"["1","2","realtime:a","phx_leave",{}]"#)
        #expect(try ClientMessage(parsing: message.text) == message)
        #expect(throws: JSONValue.ParsingError.self) { try ServerMessage(parsing: #"[null,null,"t"]"#) }
    }

    @Test func `a broadcast of bytes and one of JSON`() throws {
        let head: [UInt8] = [4, 10, 1, 10, 1] + Array("realtime:rm{\"id\":\"x\"}".utf8)
        let message = try ServerMessage(parsing: head + Array("{\"a\":1}".utf8))
        #expect(message.topic == "realtime:r")
        #expect(message.payload["event"] == "m" && message.payload["payload"] == ["a": 1])
        #expect(message.payload["meta"] == ["id": "x"])
        var bytes = head + [0, 255]
        bytes[4] = 0
        #expect(try ServerMessage(parsing: bytes).bytes == [0, 255])
        for end in 0..<head.count {
            #expect(throws: JSONValue.ParsingError.self) { try ServerMessage(parsing: Array(head[..<end])) }
        }
    }

    @Test func `positions are compared within their epoch only`() {
        let position = LogPosition("2c.17")
        #expect(position?.epoch == "2c" && position?.offset == 17)
        #expect(position?.description == "2c.17")
        #expect(LogPosition("17") == nil && LogPosition(".17") == nil && LogPosition("a.-1") == nil)
        #expect(LogPosition(epoch: "a", offset: 2).covers(LogPosition(epoch: "a", offset: 2)))
        #expect(!LogPosition(epoch: "b", offset: 2).covers(LogPosition(epoch: "a", offset: 1)))
    }
}
