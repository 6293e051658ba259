import Embedded
import Foundation
import Postgres
import Synchronization
import System
import TestSupport
import Testing

/// Tests of real clients against the real program: the scenario files in `Tests/Clients`. Each file has its own
/// database. The scenarios start the hub themselves, because many need settings, a restart or a kill.
@Suite(.within(minutes: 30)) struct ClientTests {
    static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
        .appendingPathComponent("Clients")

    /// Folders of scenarios. The last folder has the longest files. They start first, so that no long file runs alone
    /// at the end.
    static let groups = ["seeds", "conformance", "realtime_py", "hostile", "chaos"]
    /// Every scenario file as `group/file`, the name that `run.py` uses.
    static let allFiles: [String] = groups.flatMap { group in
        let found = try? FileManager.default.contentsOfDirectory(atPath: folder.appendingPathComponent(group).path)
        return (found ?? []).filter { $0.hasSuffix(".py") }.sorted().map { "\(group)/\($0.dropLast(3))" }
    }

    /// Files to run: all, or those whose name contains the value of `TW_FILE`. `TW_SCENARIO` selects scenarios by the
    /// beginning of their names.
    static let files: [String] = allFiles.filter { file in
        ProcessInfo.processInfo.environment["TW_FILE"].map { file.contains($0) } ?? true
    }

    @Test(arguments: groups)
    func `every group has scenarios`(group: String) {
        #expect(Self.allFiles.contains { $0.hasPrefix(group + "/") })
    }

    /// Runs all scenario files in one asynchronous test. It mostly waits, for example until tokens expire, so it must
    /// not block one of the few threads that tests share. It starts late, when few other tests run.
    @Test func `clients are served as the protocol says`() async throws {
        let failures: [String] = await withCheckedContinuation { continuation in
            do {
                _ = try BackgroundThread("clients") { continuation.resume(returning: allFailures()) }
            } catch {
                continuation.resume(returning: ["\(error)"])
            }
        }
        for failure in failures { Issue.record("\(failure)") }
    }

    private func allFailures() -> [String] {
        let waiting = Mutex(Self.files)
        let failures = Mutex<[String]>([])
        do {
            try together(6) { _ in
                while let file = waiting.withLock({ $0.popLast() }) {
                    guard let failure = failure(of: file) else { continue }
                    failures.withLock { $0.append(failure) }
                }
            }
        } catch {
            failures.withLock { $0.append("\(error)") }
        }
        return failures.withLock { $0 }
    }

    /// Returns nil if every scenario of the file has passed, otherwise the failure's text.
    private func failure(of file: String) -> String? {
        do {
            return try TestCluster.lend { cluster in try serve(file, on: TestDatabase(on: cluster)) }
        } catch {
            return "\(file): \(error)"
        }
    }

    private func serve(_ file: String, on database: TestDatabase) throws -> String? {
        let python = try Self.python.get()
        let directory = TemporaryDirectory.make("clients")
        let scenario = ProcessInfo.processInfo.environment["TW_SCENARIO"] ?? ""
        let ran = try ChildProcess(
            [python, Self.folder.appendingPathComponent("run.py").path, "\(file): \(scenario)"],
            output: directory + "/output", environment: try Self.environment(database, directory))
        let ending = ran.wait(milliseconds: 3_600_000)
        if ending == nil {
            ran.signal(SIGTERM)
            _ = ran.wait(milliseconds: 60_000)
        }
        let output = (try? String(contentsOfFile: directory + "/output", encoding: .utf8)) ?? ""
        print(output)
        // The cluster has few slots, so each must be dropped.
        try eventually("the slot to be let go") {
            (try? database.run(
                "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = '\(database.slot)'"
            )) != nil
        }
        return ending == .exited(0) ? nil : "\(file):\n\(output)"
    }

    /// Path of the Python in the virtual environment. The environment is created once if it is missing.
    private static let python = Result { try madePython() }

    private static func madePython() throws -> String {
        let script = folder.deletingLastPathComponent().deletingLastPathComponent()
            .appendingPathComponent("Tests/Tools/clients").path
        let output = TemporaryDirectory.make("environment") + "/output"
        let ending = try ChildProcess([script], output: output).wait()
        let said = try String(contentsOfFile: output, encoding: .utf8)
        try #require(ending == .exited(0), "Tests/Tools/clients: \(said)")
        return said.split(whereSeparator: \.isNewline).last.map(String.init) ?? ""
    }

    /// Returns the settings for a database that looks like one of Supabase. The hub and its policy login use the roles
    /// that exist there for this purpose.
    private static func environment(_ database: TestDatabase, _ directory: String) throws -> [String: String] {
        for file in SQLFile.foundation + SQLFile.demo { try file.apply(database.connection) }
        let password = "clients"
        for role in ["tidewire", "tidewire_policies"] {
            try database.run("ALTER ROLE \(role) PASSWORD \(Quoted.literal(password))")
        }
        let url = { database.cluster.url(user: $0, password: password, database: database.name) }
        return [
            "TW_HUB": ServedHub.program,
            "TW_HUB_DATABASE": url("tidewire"),
            "TW_POLICY_DATABASE": url("tidewire_policies"),
            "TW_DATABASE": database.url,
            "TW_DATA": directory + "/data",
            "TW_SLOT": database.slot,
            "TW_SECRET": "a secret of the tests, which is longer than thirty-two bytes",
            // A debug build and its tests share two cores. Ten thousand clients would take too long there.
            "TW_CROWD": ProcessInfo.processInfo.environment["TW_CROWD"] ?? "2000",
        ]
    }
}
