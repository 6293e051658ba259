import History
import System
import TestSupport
import Testing

@testable import Console
@testable import Projects
@testable import Settings
@testable import tidewire

/// Tests with the data directory of a hub that has several projects. A command must find a log by its project's name.
@Suite(.within(minutes: 5)) struct ProjectOptionTests {
    private let place = TemporaryDirectory.make("projects")
    private let commands: [any Command] = [TailCommand(), LogCommand()]

    private func run(_ words: String...) async -> Run {
        await tidewireTests.run(
            words + ["--data-dir", place], commands: commands, environment: ["DB_ENC_KEY": "k"])
    }

    /// Creates a project as the API does, and returns its data directory.
    private func make(_ name: String) throws -> String {
        let text = #"""
            {"tenant":{"external_id":"\#(name)","jwt_secret":"s3cret-of-thirty-two-bytes-or-more","extensions":[{"type":"postgres_cdc_rls","settings":
            {"region":"r","db_host":"db.example","db_port":"5432","db_name":"app","db_user":"hub","db_password":"p"}}]}}
            """#
        let store = try ProjectStore(in: DiskDirectory(place), key: Secret("k"))
        let description = try ProjectDescription.read(Array(text.utf8), named: nil)
        let defaults = try Configuration.load(
            surroundings: ConfigurationSurroundings(environment: [:], isRoot: true) { _ in .missing }
        ).projectDefaults
        return "\(place)/projects/\(try store.apply(description, defaults, at: 1).record.id)/log"
    }

    private func importLog(to path: String) throws {
        let log = LogImport(into: try DiskDirectory(path, creating: true), segmentBytes: 1 << 16)
        for line in export.split(separator: "\n") { try log.take(Array(line.utf8).span.bytes) }
        try log.finish()
    }

    @Test func `a project's log is found by its name, and no other's`() async throws {
        let path = try make("shop")
        _ = try make("forum")
        try Directories.make(path)
        try importLog(to: path)
        let found = await run("tail", "--project", "shop", "-n", "1", "--json")
        #expect(found.exitCode == .ok && found.output.contains("\"offset\":18"), "\(found.errors)")
        #expect(await run("log", "info", "--project", "shop").exitCode == .ok)
        // The project's directory has no log yet.
        #expect(await run("tail", "--project", "forum").exitCode != .ok)
        // The project of the settings has its log directly in the data directory.
        try importLog(to: place + "/log")
        #expect(await run("tail", "--project", "realtime-dev", "-n", "1").output == run("tail", "-n", "1").output)
    }

    @Test func `a name that nothing has is told with those that there are`() async throws {
        _ = try make("shop")
        let lost = await run("tail", "--project", "shoop")
        #expect(lost.exitCode == .notFound)
        #expect(lost.errors.contains("has no project shoop; it has realtime-dev, shop"), "\(lost.errors)")
        #expect(await run("tail", "--project", "shop", "--log", place).exitCode == .usage)
    }
}
