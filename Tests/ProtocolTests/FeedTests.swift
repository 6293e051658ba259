import Bytes
import Protocol
import TestSupport
import Testing

@Suite(.within(minutes: 1)) struct FeedTests {
    private static let formats: [FeedForm.Format] = [.page, .lines, .events]
    private let position = "00000000000000aa.7"

    private func record(_ format: FeedForm.Format, isFirst: Bool = true, body: String = "{}") -> String {
        let envelope = ChangeEnvelope(FeedForm(format, .untilClose)).record(at: position, isFirst: isFirst)
        let text = written {
            $0.append(envelope.prefix)
            $0.append(body)
            envelope.appendEnd(to: &$0)
        }
        #expect(text.utf8.count == envelope.byteCount(around: body.utf8.count), "its length is known beforehand")
        return text
    }

    @Test func `a change is the same record in all forms`() {
        let record = #"{"type":"change","data":{"a":1},"position":"00000000000000aa.7"}"#
        let body = #"{"a":1}"#
        #expect(self.record(.page, body: body) == "\n" + record)
        #expect(self.record(.page, isFirst: false, body: body) == ",\n" + record)
        #expect(self.record(.lines, body: body) == record + "\n")
        #expect(self.record(.lines, isFirst: false, body: body) == record + "\n")
        #expect(self.record(.events, body: body) == "event: change\ndata: \(record)\nid: \(position)\n\n")
    }

    @Test func `a row that was there before has no place to go on from`() {
        let body = #"{"a":1}"#
        for (format, wanted) in [
            (FeedForm.Format.lines, "{\"type\":\"change\",\"data\":{\"a\":1}}\n"),
            (.events, "event: change\ndata: {\"type\":\"change\",\"data\":{\"a\":1}}\n\n"),
        ] {
            let envelope = ChangeEnvelope(FeedForm(format, .chunks)).record()
            #expect(
                written {
                    $0.append(envelope.prefix)
                    $0.append(body)
                    envelope.appendEnd(to: &$0)
                } == wanted)
        }
        #expect(written { FeedEncoder(.events).appendStart(at: nil, to: &$0) } == "retry: 2000\n\n")
        #expect(written { FeedEncoder(.events).appendPosition(nil, to: &$0) } == ": alive\n\n")
        var note = SystemRecord(.ok, code: "SnapshotComplete", "x", at: nil)
        note.rows = 3
        let json = #"{"type":"system","status":"ok","code":"SnapshotComplete","message":"x","rows":3,"position":null}"#
        #expect(written { FeedEncoder(.events).appendSystem(note, to: &$0) } == "event: system\ndata: \(json)\n\n")
    }

    @Test(arguments: [1, 9, 15, 16, 255, 256, 4095, 4096, 70_000])
    func `a chunk says its length in hexadecimal digits, and nothing else stands around it`(count: Int) {
        let bytes = [UInt8](repeating: UInt8(ascii: "x"), count: count)
        let text = String(repeating: "x", count: count)
        #expect(
            written { FeedForm(.lines, .chunks).appendPiece(bytes.span.bytes, to: &$0) }
                == "\(String(count, radix: 16))\r\n\(text)\r\n")
        #expect(written { FeedForm(.lines, .untilClose).appendPiece(bytes.span.bytes, to: &$0) } == text)
        #expect(written { FeedForm(.lines, .chunks).appendEnd(to: &$0) } == "0\r\n\r\n")
        #expect(written { FeedForm(.lines, .untilClose).appendEnd(to: &$0) } == "")
    }

    @Test func `what is told in words is escaped, and has no line of its own`() {
        let note = SystemRecord(.error, code: "Truncated", "a \"b\"\n\r\\ c", at: position)
        let json =
            #"{"type":"system","status":"error","code":"Truncated","message":"a \"b\"\n\r\\ c","position":"00000000000000aa.7"}"#
        #expect(written { FeedEncoder(.lines).appendSystem(note, to: &$0) } == json + "\n")
        #expect(
            written { FeedEncoder(.events).appendSystem(note, to: &$0) }
                == "event: system\ndata: \(json)\nid: \(position)\n\n")
        let ending = FeedEnding(at: position, hasMore: true)
        #expect(
            written { FeedEncoder(.page).appendEnd(ending, [note, note], to: &$0) }
                == "],\"system\":[\(json),\(json)],\"position\":\"\(position)\",\"more\":true}\n")
    }

    @Test func `an end says from where to go on, and why where it came early`() {
        let whole = FeedEnding(at: position, hasMore: false)
        let early = FeedEnding(at: position, hasMore: true, because: .init(code: "Restarting", "it \"restarts\""))
        #expect(
            written { FeedEncoder(.lines).appendEnd(whole, [], to: &$0) }
                == "{\"type\":\"end\",\"position\":\"\(position)\",\"more\":false}\n")
        let json =
            #"{"type":"end","code":"Restarting","message":"it \"restarts\"","position":"00000000000000aa.7","more":true}"#
        #expect(written { FeedEncoder(.lines).appendEnd(early, [], to: &$0) } == json + "\n")
        #expect(
            written { FeedEncoder(.events).appendEnd(early, [], to: &$0) }
                == "event: end\ndata: \(json)\nid: \(position)\n\n")
        #expect(
            written { FeedEncoder(.page).appendEnd(whole, [], to: &$0) }
                == "],\"system\":[],\"position\":\"\(position)\",\"more\":false}\n")
    }

    @Test func `a sign of life has no data for a browser, and moves its last id`() {
        #expect(
            written { FeedEncoder(.events).appendPosition(position, to: &$0) } == ": alive\nid: \(position)\n\n")
        #expect(
            written { FeedEncoder(.lines).appendPosition(position, to: &$0) }
                == "{\"type\":\"position\",\"position\":\"\(position)\"}\n")
        #expect(
            written { FeedEncoder(.events).appendStart(at: position, to: &$0) }
                == "retry: 2000\nid: \(position)\n\n")
    }
}
