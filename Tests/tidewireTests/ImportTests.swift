import Bytes
import EventLog
import Glibc
import History
import Ingest
import System
import TestSupport
import Testing

@testable import Console
@testable import Settings
@testable import tidewire

private let lines = [
    #"{"type":"header","format":"tidewire-log","version":1,"source":"7","epoch":"7dfdd7af39bc2da8","offset":0,"lsn":"0/0"}"#,
    #"{"type":"progress","lsn":"0/10","time":"2026-11-21T10:04:51.703277Z"}"#,
    #"{"type":"end","offset":0,"lines":3}"#,
]

/// Directory for an import, with the paths in it.
private struct ImportStage: ~Copyable {
    let root = "/tmp/tidewire-test-import-\(UInt64.random(in: 0 ... .max))"
    var export: String { root + "/export.ndjson" }

    init(_ lines: [String] = lines) throws {
        try Directories.make(root)
        let file = try DiskDirectory(root).open("export.ndjson", for: .creating)
        let bytes = Array(lines.map { $0 + "\n" }.joined().utf8)
        try file.write(bytes.span.bytes, at: 0)
    }

    func names(_ path: String = "") -> [String] { ((try? DiskDirectory(root + path).names()) ?? []).sorted() }

    func importing(_ words: String...) async -> Run {
        await run(["log", "import", export] + words, commands: [LogCommand()])
    }

    deinit { Self.remove(root) }

    private static func remove(_ path: String) {
        for name in (try? DiskDirectory(path).names()) ?? [] {
            if unlink(path + "/" + name) != 0 { remove(path + "/" + name) }
        }
        rmdir(path)
    }
}

@Suite(.within(minutes: 5)) struct ImportTests {
    @Test func `a refused import leaves nothing, and a whole one its log`() async throws {
        let broken = try ImportStage(Array(lines.dropLast()))
        let refused = await broken.importing("--log", broken.root + "/log")
        #expect(refused.exitCode == .notFound && refused.errors.contains("ends before its end line"))
        #expect(broken.names() == ["export.ndjson"])
        let whole = try ImportStage()
        let done = await whole.importing("--log", whole.root + "/log/")
        #expect(done.exitCode == .ok, "\(done.errors)")
        #expect(whole.names() == ["export.ndjson", "log"])
        #expect(whole.names("/log").contains("0000000001.segment"))
        let again = await whole.importing("--log", whole.root + "/log")
        #expect(again.exitCode == .notFound && again.errors.contains("is not empty"))
    }

    /// Simulates a `kill -9` after every line, and before the log gets its final name.
    @Test(arguments: 0...4) func `an import that was killed has made no log, and can be run again`(
        stop: Int
    ) async throws {
        let stage = try ImportStage()
        let path = stage.root + "/log"
        do {
            let place = try ImportPlace(path, dataDirectory: nil)
            let log = LogImport(into: place.directory, segmentBytes: 1 << 20)
            for line in lines.prefix(stop) {
                let bytes = Array(line.utf8)
                try log.take(bytes.span.bytes)
            }
            if stop > lines.count { try log.finish() }
        }
        #expect(stage.names() == ["export.ndjson", "log.import"])
        let seen = await run(["log", "verify", "--log", path], commands: [LogCommand()])
        #expect(seen.exitCode == .unreachable)
        #expect(await stage.importing("--log", path).exitCode == .ok)
        #expect(stage.names() == ["export.ndjson", "log"])
    }

    @Test func `two imports, or an import and a hub, do not meet`() async throws {
        let stage = try ImportStage()
        let place = try ImportPlace(stage.root + "/log", dataDirectory: nil)
        let second = await stage.importing("--log", stage.root + "/log")
        #expect(second.exitCode == .notFound && second.errors.contains("is importing into"))
        place.clear()
        let hub = try IngestService.lock(stage.root + "/data")
        let beside = await stage.importing("--data-dir", stage.root + "/data")
        #expect(beside.exitCode == .unreachable && beside.errors.contains("is in use by"), "\(beside.errors)")
        withExtendedLifetime(hub) {}
    }

    @Test func `progress is shown after a second, to a person, and goes away`() {
        for (hasScreen, isQuiet) in [(true, false), (true, true), (false, false)] {
            var shown = ""
            let time = SteppedTime()
            let terminal = Terminal(
                width: nil, surroundings: ConfigurationSurroundings(environment: [:], isRoot: false) { _ in .missing },
                output: { _ in }, errors: { shown += String(decoding: $0, as: UTF8.self) }, hasErrorScreen: hasScreen,
                time: time)
            let progress = Progress(terminal, isQuiet: isQuiet)
            for step in 1...20 {
                time.pass(milliseconds: 100)
                progress.note("step \(step)")
            }
            progress.clear()
            let isSeen = hasScreen && !isQuiet
            #expect(shown == (isSeen ? [10, 13, 16, 19].map { "\r\u{1b}[Kstep \($0)" }.joined() + "\r\u{1b}[K" : ""))
        }
    }
}

@Suite(.within(minutes: 5)) struct DamageCommandTests {
    private let commands: [any Command] = [LogCommand(), TailCommand()]

    private func flip(_ byte: UInt64, of name: String, in path: String) throws {
        let file = try DiskDirectory(path).open(name, for: .writing)
        var bytes: [UInt8] = [0]
        _ = try bytes.withUnsafeMutableBytes { try file.read(into: $0, at: byte) }
        bytes[0] ^= 4
        try file.write(bytes.span.bytes, at: byte)
    }

    private func removeAside(_ path: String) {
        let parent = Directories.parent(of: path)
        let prefix = String(path.dropFirst(parent.count + 1)) + ".damaged-"
        for name in (try? DiskDirectory(parent).names()) ?? [] where name.hasPrefix(prefix) {
            guard let aside = try? DiskDirectory(parent + "/" + name) else { continue }
            for file in (try? aside.names()) ?? [] { try? aside.remove(file) }
            try? Directories.remove(parent + "/" + name)
        }
    }

    @Test func `a sealed segment that went bad is told, and set aside when asked`() async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        defer { removeAside(log.path) }
        func on(_ words: String...) async -> Run { await run(words + ["--log", log.path], commands: commands) }
        #expect(await on("log", "info").exitCode == .ok)
        #expect(await on("log", "accept-loss", "--yes").exitCode == .notFound)
        try flip(700, of: "0000000001.segment", in: log.path)
        let info = await on("log", "info")
        #expect(info.exitCode == .damaged)
        #expect(info.errors.contains("0000000001.segment: damaged at byte"), "\(info.errors)")
        #expect(info.output.contains("SEGMENT"))
        #expect(await on("log", "info", "--unchecked").exitCode == .ok)
        #expect(await on("log", "verify").exitCode == .damaged)
        let asked = await on("log", "accept-loss")
        #expect(asked.exitCode == .notFound && asked.errors.contains("nothing was changed"))
        #expect(asked.output.contains("move aside \(log.path)/0000000001.segment (@12 … @"), "\(asked.output)")
        #expect(await on("log", "info").exitCode == .damaged)
        let done = await on("log", "accept-loss", "--yes")
        #expect(done.exitCode == .ok, "\(done.errors)")
        #expect(done.output.contains("the log will begin at @19"), "\(done.output)")
        #expect(await on("log", "info").exitCode == .ok)
        #expect(await on("tail", "--from", "@12").exitCode == .outsideRetention)
    }

    @Test func `damage in the newest segment ends in a marked gap`() async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        defer { removeAside(log.path) }
        do {
            var options = EventLogOptions(source: 7_710_563_452_674_252_973)
            options.preparesSegments = false
            let writer = try EventLogWriter(directory: DiskDirectory(log.path), options: options)
            for lsn in 0x2000000...0x2000003 as ClosedRange<UInt64> {
                try writer.append(kind: .progress, lsn: lsn, time: 1_800_000_000_000_000, payload: RawSpan())
                try writer.flush()
            }
        }
        try flip(128 + 48 + 24, of: "0000000002.segment", in: log.path)
        func on(_ words: String...) async -> Run { await run(words + ["--log", log.path], commands: commands) }
        #expect(await on("log", "info").exitCode == .damaged)
        let done = await on("log", "accept-loss", "--yes")
        #expect(done.exitCode == .ok, "\(done.errors)")
        #expect(done.output.contains("cut \(log.path)/0000000002.segment after @19"), "\(done.output)")
        #expect(await on("log", "verify").exitCode == .ok)
        let shown = await on("tail", "--from", "@12")
        #expect(shown.output.contains("gap: log_damaged, 0/2000000 → 0/2000000, new epoch"), "\(shown.output)")
    }
}

/// Clock that moves only when a test moves it.
private final class SteppedTime: TimeSource, @unchecked Sendable {
    // Only one thread uses this value, so it needs no lock.
    private var now: UInt64 = 5_000_000_000

    func monotonicNanoseconds() -> UInt64 { now }
    func unixMicroseconds() -> Int64 { Int64(now / 1000) }
    func pass(milliseconds: UInt64) { now += milliseconds * 1_000_000 }
}
