import Diagnostics
import Synchronization
import TestSupport
import Testing

@testable import Gateway

@Suite(.within(minutes: 1)) struct RefusalLogTests {
    /// Logged lines without their time.
    private final class Lines: Sendable {
        private let lines = Mutex<[String]>([])

        var all: [String] { lines.withLock { $0 } }

        var log: Log {
            Log(
                format: .text, usesColour: false,
                sink: { line in
                    let text = String(decoding: line.dropLast(), as: UTF8.self)
                    self.lines.withLock { $0.append(String(text.drop { $0 != " " }.dropFirst())) }
                })
        }
    }

    private static func seconds(_ count: UInt64) -> UInt64 { 1_000_000_000 * (100 + count) }

    private let lines = Lines()

    @Test func `the first is said at once, the others once a minute with their number`() {
        let refusals = RefusalLog(project: "app", log: lines.log)
        for second: UInt64 in 0..<130 { refusals.note(.token(.badSignature), at: Self.seconds(second)) }
        #expect(lines.all.count == 3)
        #expect(
            lines.all[0].hasPrefix(
                "warning the hub refuses tokens of clients project=app reason=bad_signature count=1 hint="))
        #expect(lines.all[1].contains("count=60") && lines.all[2].contains("count=60"))
    }

    @Test func `each reason has lines of its own, and each a level`() {
        let refusals = RefusalLog(project: "app", log: lines.log)
        for reason in ProjectMetrics.TokenRefusal.allCases {
            refusals.note(.token(reason), at: Self.seconds(0))
            refusals.note(.token(reason), at: Self.seconds(1))
        }
        #expect(lines.all.count == ProjectMetrics.TokenRefusal.allCases.count)
        #expect(
            lines.all.contains { $0.hasPrefix("info the hub refuses tokens of clients project=app reason=expired ") })
        refusals.note(.tooManyUsers, at: Self.seconds(2))
        #expect(
            lines.all.last?.hasPrefix(
                "warning the hub refuses clients, because the project has reached its limit of users ")
                == true)
    }

    @Test func `a host name is cut, and nothing in it reads as anything else`() {
        let refusals = RefusalLog(project: nil, log: lines.log)
        refusals.note(.unknownHost, host: "a.example:4000\u{1B}[31m project=x\né", at: Self.seconds(0))
        #expect(lines.all[0].contains("host=a.example:4000?[31m?project?x??? count=1"))
        refusals.note(.unknownHostServed, host: String(repeating: "x", count: 5000), at: Self.seconds(1))
        #expect(lines.all[1].contains("host=\"" + String(repeating: "x", count: Limits.shownHostBytes) + "…\" count=1"))
    }

    @Test func `many threads say no line twice and lose none in the count`() throws {
        let refusals = RefusalLog(project: "app", log: lines.log)
        try together(4) { _ in for _ in 0..<1000 { refusals.note(.version, at: Self.seconds(0)) } }
        refusals.note(.version, at: Self.seconds(60))
        #expect(lines.all.count == 2 && lines.all[1].contains("count=4000"))
    }
}
