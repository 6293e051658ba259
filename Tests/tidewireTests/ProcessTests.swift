import Bytes
import Change
import Embedded
import Glibc
import Postgres
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Built program that runs as a process of its own.
private struct Process {
    let child: ChildProcess
    private let file: String

    init(_ words: [String], input: Pipe? = nil) throws {
        let program = try #require(OwnProgram.beside("tidewire"))
        file = TemporaryDirectory.make("process") + "/output"
        guard let input else {
            child = try ChildProcess([program] + words, output: file)
            return
        }
        let output = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0o600)
        defer { close(output) }
        child = try ChildProcess(
            [program] + words, ends: ChildProcess.Ends(input: input.reading, output: output, errors: output))
    }

    /// Text that the program wrote to either output stream.
    var said: String {
        let bytes = try? DiskDirectory(Directories.parent(of: file)).open("output", for: .reading)
            .contents(atMost: 1 << 20)
        return String(decoding: bytes ?? [], as: UTF8.self)
    }

    func ended() -> ChildProcess.Ending? { child.wait(milliseconds: 180_000) }

    /// Returns the program's peak memory in bytes. The kernel reports it while the program runs. For a child that has
    /// ended, the kernel's value is useless, because it begins with the parent's memory.
    func peak() -> Int {
        var peak = 0
        while child.isRunning {
            peak = max(peak, Self.peak(of: child.processID) ?? 0)
            BackgroundThread.rest(nanoseconds: 500_000)
        }
        return peak
    }

    private static func peak(of process: pid_t) -> Int? {
        guard let file = try? DiskDirectory("/proc/\(process)").open("status", for: .reading) else { return nil }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = (try? bytes.withUnsafeMutableBytes { try file.read(into: $0, at: 0) }) ?? 0
        let line = String(decoding: bytes.prefix(count), as: UTF8.self).split(separator: "\n").first {
            $0.hasPrefix("VmHWM:")
        }
        return line?.split(separator: " ").compactMap { Int($0) }.first.map { $0 << 10 }
    }
}

/// Tests of an interruption (Ctrl-C) that is sent to the program itself.
@Suite(.serialized, .within(minutes: 15)) struct InterruptionTests {
    /// Returns a log with ten rows, each inserted by its own transaction, one second after the previous one.
    private static func steps() throws -> TemporaryLog {
        let relation = Relation(
            oid: 16_701, schema: "public", name: "steps", identity: .full,
            columns: [Column(name: "id", typeOID: 23, typeName: "int4", isIdentity: true, isPrimaryKey: true)])
        var lines = SecretStage.Lines()
        lines.add(relation)
        for id in 0..<10 { lines.add("INSERT", relation, new: ["id": String(id)]) }
        return try TemporaryLog(lines.ended)
    }

    private static func staging() throws -> TestDatabase {
        let database = try TestDatabase()
        try database.run("CREATE TABLE steps (id int PRIMARY KEY)")
        return database
    }

    private static func ids(_ database: TestDatabase) throws -> [Int] {
        try database.run("SELECT id FROM steps ORDER BY id").values.compactMap { $0[0].flatMap { Int($0) } }
    }

    private static func replay(
        _ log: TemporaryLog, _ database: TestDatabase, _ words: String...
    ) throws -> Process {
        try Process(["replay", "--log", log.path, "--target", database.url, "--go"] + words)
    }

    /// Waits until `holds` is true. Returns false if the time limit passes first.
    private static func comes(_ holds: () throws -> Bool) rethrows -> Bool { try eventually(holds) }

    private func replays(_ log: TemporaryLog) async -> Int {
        await run(["log", "audit", "--log", log.path, "--json"], commands: [LogCommand()]).output
            .split(separator: "\n").count { $0.contains(#""action":"replay""#) }
    }

    @Test func `a replay stops between two transactions, and says how to go on`() async throws {
        let (log, database) = (try Self.steps(), try Self.staging())
        defer { log.remove() }
        // At this speed, ten seconds pass between two transactions.
        let slow = try Self.replay(log, database, "--speed", "x0.1")
        #expect(try Self.comes { try !Self.ids(database).isEmpty })
        slow.child.signal(SIGINT)
        #expect(slow.ended() == .exited(1), "\(slow.said)")
        let next = try Self.ids(database).count
        #expect(try Self.ids(database) == Array(0..<next) && next < 10)
        let changes = next == 1 ? "1 transaction, 1 change" : "\(next) transactions, \(next) changes"
        #expect(
            slow.said.hasSuffix("Replayed \(changes). Interrupted: --from @\(next) continues.\n"), "\(slow.said)")
        #expect(await replays(log) == 1)
        // The replay continues as if there had been no interruption.
        let rest = try Self.replay(log, database, "--speed", "max", "--from", "@\(next)")
        #expect(rest.ended() == .exited(0), "\(rest.said)")
        #expect(try Self.ids(database) == Array(0..<10))
        #expect(await replays(log) == 2)
    }

    @Test func `a transaction that is under way is undone, though the target does not answer`() async throws {
        let (log, database) = (try Self.steps(), try Self.staging())
        defer { log.remove() }
        // Another session that inserts the same row must wait for the end of this transaction.
        try database.run("BEGIN; INSERT INTO steps VALUES (4)")
        let stuck = try Self.replay(log, database, "--speed", "max")
        let other = try Connection(database.target, applicationName: "tests")
        #expect(
            try Self.comes {
                try other.query(
                    "SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND wait_event_type = 'Lock'",
                    [database.name]
                ).first?.first == "1"
            }, "\(stuck.said)")
        stuck.child.signal(SIGINT)
        #expect(stuck.ended() == .exited(1), "\(stuck.said)")
        #expect(
            stuck.said.hasSuffix("Replayed 4 transactions, 4 changes. Interrupted: --from @4 continues.\n"),
            "\(stuck.said)")
        try database.run("ROLLBACK")
        #expect(try Self.ids(database) == Array(0..<4))
        #expect(await replays(log) == 1)
        let rest = try Self.replay(log, database, "--speed", "max", "--from", "@4")
        #expect(rest.ended() == .exited(0), "\(rest.said)")
        #expect(try Self.ids(database) == Array(0..<10))
    }

    /// Checks an import that waits for further input from a pipe.
    @Test func `an import leaves nothing`() throws {
        let place = TemporaryDirectory.make("import")
        let pipe = try Pipe()
        let importing = try Process(["log", "import", "-", "--log", place + "/log"], input: pipe)
        close(pipe.reading)
        let lines = export.split(separator: "\n").prefix(6).map { $0 + "\n" }.joined()
        #expect(ByteStream.write(Array(lines.utf8), to: pipe.writing))
        #expect(
            eventually {
                ((try? DiskDirectory(place + "/log.import").names()) ?? []).contains("0000000001.segment")
            })
        importing.child.signal(SIGINT)
        #expect(importing.ended() == .exited(1))
        close(pipe.writing)
        #expect(importing.said.hasPrefix("tidewire: interrupted; nothing of the import is left\n"), "\(importing.said)")
        #expect(try DiskDirectory(place).names().isEmpty)
    }
}

/// Tests of the memory that commands need for a log with one transaction of 80 MB.
@Suite(.serialized, .within(minutes: 30)) struct MemoryTests {
    private static let transaction = 80_000_000

    /// Writes an export with one transaction: its parts as ingest makes them, or all of it in one value.
    private static func exported(values: Int) throws -> String {
        let path = TemporaryDirectory.make("memory") + "/export.ndjson"
        let file = try DiskDirectory(Directories.parent(of: path)).open("export.ndjson", for: .creating)
        var (at, lines, offset) = (UInt64(0), 0, 0)
        func write(_ text: String) throws {
            let bytes = Array((text + "\n").utf8)
            try file.write(bytes.span.bytes, at: at)
            at += UInt64(bytes.count)
            lines += 1
        }
        for text in export.split(separator: "\n").prefix(2) {
            try write(String(text).replacing(#""offset":12"#, with: #""offset":0"#))
        }
        let value = String(repeating: "x", count: transaction / values)
        let together = max(1, values / 80)
        while offset < values {
            let count = min(together, values - offset)
            let isLast = offset + count == values
            try write(
                #"{"type":"transaction","offset":\#(offset),"changes":\#(count),"xid":740,"commit_lsn":"0/100","end_lsn":"0/130","commit_time":"2026-11-21T10:04:51.703277Z","first_index":\#(offset),"continued":\#(!isLast),"lsn":"\#(isLast ? "0/130" : "0/0")","time":"2026-11-21T10:04:51.703277Z"}"#
            )
            for _ in 0..<count {
                try write(
                    #"{"type":"change","offset":\#(offset),"op":"INSERT","relation":"0a021ce2f249ec4b","new":{"id":"\#(offset)","email":"me@x","body":"\#(value)","deleted_at":null}}"#
                )
                offset += 1
            }
        }
        try write(#"{"type":"end","offset":\#(offset),"lines":\#(lines + 1)}"#)
        return path
    }

    private func peak(_ words: [String], exits code: Int32 = 0) throws -> Int {
        let process = try Process(words)
        let peak = process.peak()
        #expect(process.child.ending == .exited(code), "\(words): \(process.said.prefix(2000))")
        return peak
    }

    /// Checks the memory beyond the program's usual amount. Many values need a few megabytes. One large value is in
    /// memory as it is read, as it is written, and once more while a buffer grows: 240 MB, and the memory that the
    /// allocator keeps.
    @Test(arguments: [(8000, 32_000_000), (1, 290_000_000)])
    func `a large transaction is read part by part, and a large value held three times at most`(
        values: Int, most: Int
    ) throws {
        let export = try Self.exported(values: values)
        let log = Directories.parent(of: export) + "/log"
        let usual = try peak(["log", "audit", "--log", Directories.parent(of: export)], exits: 1)
        for words in [
            ["log", "import", export], ["log", "verify"], ["row", "fullrep", "0"], ["row", "fullrep", "999999"],
            ["log", "export", "--unmask", "*"], ["log", "export"], ["tx", "740", "-n", "1"],
        ] {
            let isMissing = words.contains("999999")
            let took = try peak(words + ["--log", log], exits: isMissing ? 1 : 0) - usual
            #expect(took < most, "\(words) took \(took / 1_000_000) MB")
        }
        let whole = try peak(["row", "fullrep", "0", "--json", "--log", log]) - usual
        #expect(whole < 2 * most, "row --json took \(whole / 1_000_000) MB")
    }
}
