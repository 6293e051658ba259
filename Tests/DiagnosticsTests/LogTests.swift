import Diagnostics
import Synchronization
import TestSupport
import Testing

/// Log that keeps its lines in memory, with a fixed clock.
private final class Recorder: Sendable {
    private let lines = Mutex<[String]>([])

    var text: String {
        lines.withLock { $0.joined() }
    }

    func log(level: Log.Level = .debug, format: Log.Format = .text, usesColour: Bool = false) -> Log {
        Log(
            level: level, format: format, usesColour: usesColour,
            now: { WallTime(millisecondsSince1970: 1_794_650_531_204) },
            sink: { line in self.lines.withLock { $0.append(String(decoding: line, as: UTF8.self)) } })
    }
}

@Suite(.within(minutes: 5)) struct LogTests {
    private let recorder = Recorder()

    @Test func `writes time, level, sentence and fields on one line`() {
        recorder.log().info("slot created", [.slot("tidewire"), .lsn("0/16B3748"), .bytes(4096)])
        #expect(
            recorder.text == "2026-11-14T10:02:11.204Z info slot created slot=tidewire lsn=0/16B3748 bytes=4096\n")
    }

    @Test func `a line says whose it is, once, on whatever thread`() throws {
        let log = recorder.log()
        LogScope.of("app") {
            log.info("one", [.count(1)])
            log.info("two", [.count(2), .project("named")])
            let body = LogScope.carried { log.info("three") }
            LogScope.of("other", body)
            LogScope.of("other") { log.info("four") }
        }
        log.info("five")
        LogScope.carried { log.info("six") }()
        let lines = recorder.text.split(separator: "\n").map {
            $0.split(separator: " ").dropFirst(2).joined(separator: " ")
        }
        #expect(
            lines == [
                "one project=app count=1", "two count=2 project=named", "three project=app", "four project=other",
                "five",
                "six",
            ])
    }

    @Test func `each subject is named once, and the log says when it names no more`() {
        var named = LoggedOnce(atMost: 2, ending: "the log names no further policies")
        let log = recorder.log()
        let isNews = ["a", "a", "b", "c", "d", "a"].map { named.isNews($0, in: log) }
        #expect(isNews == [true, false, true, false, false, false])
        #expect(recorder.text.split(separator: "\n").count == 1)
        #expect(recorder.text.contains("the log names no further policies"))
    }

    @Test func `writes the same as JSON with numbers as numbers`() {
        recorder.log(format: .json).warning(
            "disk is full", [.path("/data \"x\""), .count(-3), .offset(UInt64.max), .delay(.milliseconds(1500))])
        #expect(
            recorder.text == #"{"time":"2026-11-14T10:02:11.204Z","level":"warning","event":"disk is full","#
                + #""path":"/data \"x\"","count":-3,"offset":18446744073709551615,"delay_ms":1500.0}"# + "\n")
    }

    @Test func `quotes what does not read as one word`() {
        let log = recorder.log()
        log.error("it failed", [.error("no such file"), .reason(""), .path("a=b"), .user("ü"), .host("db.local")])
        #expect(
            recorder.text.hasSuffix(
                #"it failed error="no such file" reason="" path="a=b" user="ü" host=db.local"# + "\n"))
    }

    @Test(arguments: [
        ("a\nb", #""a\nb""#), ("a\r\tb", #""a\r\tb""#), ("\u{1B}[31m", #""\u001b[31m""#), ("\0", #""\u0000""#),
        ("\u{7F}", #""\u007f""#), ("\u{85}", #""\u0085""#), ("\u{2028}", #""\u2028""#), ("\u{202E}x", #""\u202ex""#),
        (#"say "hi"\"#, #""say \"hi\"\\""#),
    ])
    func `lets no value start a line or steer a terminal`(value: String, quoted: String) {
        recorder.log().info("peer said", [.reason(value)])
        #expect(recorder.text.hasSuffix("peer said reason=\(quoted)\n"))
        #expect(recorder.text.filter { $0 == "\n" }.count == 1)
    }

    @Test func `cuts a value that is too long`() {
        let long = String(repeating: "ä", count: Limits.maximumLogFieldBytes)
        recorder.log().info("peer said", [.reason(long)])
        #expect(recorder.text.utf8.count < Limits.maximumLogFieldBytes + 100)
        #expect(recorder.text.hasSuffix("ä…\"\n"))
    }

    @Test func `does not build the fields of a line that is not written`() {
        var built = 0
        func field() -> [LogField] {
            built += 1
            return [.count(built)]
        }
        let log = recorder.log(level: .warning)
        log.info("not written", field())
        log.debug("not written", field())
        #expect(built == 0)
        log.warning("written", field())
        #expect(built == 1)
        #expect(recorder.text.hasSuffix("warning written count=1\n"))
    }

    @Test func `changes level and format when configured`() {
        let log = recorder.log(level: .error)
        #expect(!log.isEnabled(.info))
        log.configure(level: .debug, format: .json)
        #expect(log.isEnabled(.debug))
        log.debug("connected")
        #expect(recorder.text.hasPrefix("{"))
    }

    @Test func `colours the level and nothing else`() {
        recorder.log(usesColour: true).error("it failed", [.errno(5)])
        #expect(recorder.text == "2026-11-14T10:02:11.204Z \u{1B}[31merror\u{1B}[0m it failed errno=5\n")
    }

    @Test(arguments: [
        (0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"),
        (951_782_400_000, "2000-02-29T00:00:00.000Z"),
        (4_107_542_399_999, "2100-02-28T23:59:59.999Z"), (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        (1_709_164_800_001, "2024-02-29T00:00:00.001Z"),
    ])
    func `writes moments as RFC 3339`(milliseconds: Int64, text: String) {
        #expect(WallTime(millisecondsSince1970: milliseconds).description == text)
    }
}
