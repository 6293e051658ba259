import EventLog
import Foundation
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Tests with logs that earlier versions wrote. Every later version must read them and continue to write them. The
/// folder has one log for each version with a different format (made by `Tests/Clients/make_log.py`). A log in it is
/// never replaced.
@Suite(.within(minutes: 5)) struct KeptLogTests {
    private static let fixtures = URL(filePath: #filePath).deletingLastPathComponent().appending(path: "Fixtures")
    private static let all = ((try? FileManager.default.contentsOfDirectory(atPath: fixtures.path)) ?? []).sorted()
    static let logs = all.filter { $0.hasPrefix("log-") }
    static let exports = all.filter { $0.hasPrefix("export-") }

    /// Returns the path of a copy of the log, which the test may change.
    private func copy(_ log: String) throws -> String {
        let place = TemporaryDirectory.make("kept") + "/log"
        try FileManager.default.copyItem(atPath: Self.fixtures.path + "/" + log, toPath: place)
        return place
    }

    /// Returns the source identity from a segment's header.
    private func source(of segment: Data) -> UInt64 {
        (0..<8).reduce(0) { $0 | UInt64(segment[56 + $1]) << (8 * UInt64($1)) }
    }

    private func run(_ words: String..., on log: String) async -> Run {
        await tidewireTests.run(words + ["--log", log], commands: allCommands)
    }

    @Test func `there are kept logs and exports`() {
        #expect(Self.logs.contains("log-0.1") && Self.exports.contains("export-0.1.ndjson"))
    }

    /// Checks an imported export: it must give the same answers as the kept log of the same version.
    @Test(arguments: exports) func `an export of an earlier version is imported`(name: String) async throws {
        let place = TemporaryDirectory.make("imported") + "/log"
        let made = await run("log", "import", Self.fixtures.path + "/" + name, on: place)
        #expect(made.exitCode == .ok, "\(made.errors)")
        #expect(await run("log", "verify", on: place).exitCode == .ok)
        let log = try copy(name.replacing("export-", with: "log-").replacing(".ndjson", with: ""))
        for words in [["tail", "--json", "--presence", "--limit", "1000"], ["row", "notes", "1"], ["who", "5"]] {
            let told = await tidewireTests.run(words + ["--log", place], commands: allCommands)
            let meant = await tidewireTests.run(words + ["--log", log], commands: allCommands)
            #expect(told.exitCode == .ok && !told.output.isEmpty, "\(words): \(told.errors)")
            #expect(told.output == meant.output, "\(words)")
        }
    }

    @Test(arguments: logs) func `every reading command reads it`(name: String) async throws {
        let log = try copy(name)
        let ana = "00000000-0000-4000-8000-00000000000a"
        let tail = await run("tail", "--json", "--presence", "--limit", "1000", on: log)
        let lines = tail.output.split(separator: "\n")
        #expect(tail.exitCode == .ok, "\(tail.errors)")
        for (operation, count) in [
            ("INSERT", 17), ("UPDATE", 4), ("DELETE", 1), ("TRUNCATE", 1), ("PRESENCE", 2), ("GAP", 1),
        ] {
            #expect(lines.count { $0.contains(#""op":"\#(operation)""#) } == count, "\(operation)")
        }
        let said: [(words: [String], parts: [String])] = [
            (["row", "notes", "1"], [#"ä \"b\""#, "\"ok\"→\"sad\"", "gap: slot_missing"]),
            (["row", "plain", "9"], ["title: \"nine\", more: 7"]), (["asof", "notes"], ["id: 4, body: null"]),
            (["event", "0"], ["INSERT public.notes key 1"]), (["who", "5"], ["sent", ana]),
            (["user", ana], ["joined", "left"]), (["session"], ["the hub started"]),
            (["stats"], ["public.notes", "23 changes in 11 transactions"]),
            (["log", "info"], ["2 epochs (1 marked by gaps)"]), (["log", "verify"], ["every checksum is correct"]),
            (["log", "export"], [#""type":"end""#]),
        ]
        for (words, parts) in said {
            let told = await tidewireTests.run(words + ["--log", log], commands: allCommands)
            #expect(told.exitCode == .ok, "\(words): \(told.errors)")
            for part in parts { #expect(told.output.contains(part), "\(words): \(told.output.prefix(600))") }
        }
    }

    @Test(arguments: logs) func `this version writes on behind it`(name: String) async throws {
        let log = try copy(name)
        let directory = try DiskDirectory(log)
        var reader = try EventLogReader(directory: directory)
        var count = 0
        while try reader.next() { count += 1 }
        let last = (offset: reader.entry.offset, lsn: reader.entry.lsn, time: reader.entry.time)
        #expect(count > 20)
        do {
            let first = try Data(contentsOf: URL(filePath: log + "/0000000001.segment"))
            var options = EventLogOptions(source: source(of: first))
            options.preparesSegments = false
            let writer = try EventLogWriter(directory: directory, options: options)
            let payload: [UInt8] = [1, 2, 3]
            let none: [UInt64] = []
            for step in 1...3 {
                _ = try writer.append(
                    kind: .progress, continued: false, changeCount: 0, lsn: last.lsn + UInt64(step), time: last.time,
                    payload: payload.span.bytes, keys: none.span)
            }
            try writer.flush()
        }
        #expect(await run("log", "verify", on: log).exitCode == .ok)
        var again = try EventLogReader(directory: directory)
        var after = 0
        while try again.next() { after += 1 }
        #expect(after == count + 3)
        #expect(again.entry.lsn == last.lsn + 3)
        #expect(await run("row", "notes", "1", on: log).exitCode == .ok)
    }

    /// Checks a log with an unknown format: the refusal must name the format, and must not report damage.
    @Test(arguments: logs) func `a newer format is refused by name`(name: String) async throws {
        let log = try copy(name)
        let path = log + "/0000000002.segment"
        var bytes = try Data(contentsOf: URL(filePath: path))
        bytes[8] = 99
        try bytes.write(to: URL(filePath: path))
        let told = await run("tail", on: log)
        #expect(told.exitCode != .ok)
        #expect(told.errors.contains("format 99 of a newer version"), "\(told.errors)")
        var options = EventLogOptions(source: source(of: try Data(contentsOf: URL(filePath: path))))
        options.preparesSegments = false
        let kept = try Data(contentsOf: URL(filePath: log + "/0000000002.segment"))
        #expect(throws: EventLogError.self) {
            let writer = try EventLogWriter(directory: DiskDirectory(log), options: options)
            try writer.flush()
        }
        #expect(try Data(contentsOf: URL(filePath: log + "/0000000002.segment")) == kept)
    }
}
