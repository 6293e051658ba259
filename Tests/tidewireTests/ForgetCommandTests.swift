import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Tests of `tidewire log forget` on the small log that the history commands use. In this log, a change gave a row
/// another key.
@Suite(.within(minutes: 5)) struct ForgetCommandTests {
    private func run(_ words: String..., on log: TemporaryLog) async -> Run {
        await tidewireTests.run(words + ["--log", log.path], commands: allCommands)
    }

    @Test func `without --go it only says how much it would be`() async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        let told = await run("log", "forget", "fullrep", "5", on: log)
        #expect(told.exitCode == .ok, "\(told.errors)")
        #expect(
            told.output.hasPrefix("would forget 4 changes of public.fullrep in 1 segment; nothing was changed"),
            "\(told.output)")
        #expect(told.output.contains("1 change gave the row another key"))
        #expect(await run("tail", "--from", "oldest", "--unmask", "*", on: log).output.contains("me@x"))
        #expect(await run("log", "forget", "fullrep", "77", on: log).exitCode == .notFound)
        #expect(await run("log", "forget", "fullrep", on: log).exitCode == .usage)
        #expect(await run("log", "forget", "fulrep", "5", on: log).exitCode != .ok)
    }

    @Test func `every command says that it was forgotten`() async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        let done = await run("log", "forget", "fullrep", "5", "--go", on: log)
        #expect(done.exitCode == .ok, "\(done.errors)")
        #expect(done.output.hasPrefix("forgot 4 changes of public.fullrep in 1 segment\n"), "\(done.output)")
        let verified = await run("log", "verify", on: log)
        #expect(verified.exitCode == .ok)
        #expect(verified.output.contains("4 changes were forgotten"), "\(verified.output)")
        for words in [
            ["tail", "--from", "oldest", "--limit", "100"], ["row", "fullrep", "5"], ["tx", "742"], ["event", "13"],
        ] {
            let told = await tidewireTests.run(words + ["--log", log.path], commands: allCommands)
            #expect(told.exitCode == .ok, "\(words): \(told.errors)")
            #expect(told.output.contains("(forgotten on 2"), "\(words): \(told.output)")
            #expect(!told.output.contains("call back"), "\(words): \(told.output)")
        }
        let json = await run("row", "fullrep", "5", "--json", on: log)
        #expect(json.output.contains(#""record":{},"old_record":null,"forgotten":"2"#), "\(json.output)")
        let asOf = await run("asof", "fullrep", "--to", "@15", on: log)
        #expect(
            asOf.output.contains("1 more rows are left out, because their values were forgotten"),
            "\(asOf.output)\(asOf.errors)")
        // The row's last version had the other key, and the command was given only one key.
        let other = await run("row", "fullrep", "6", on: log)
        #expect(other.output.contains("(row removed)"), "\(other.output)")
        let exported = await run("log", "export", "--unmask", "*", on: log)
        #expect(exported.output.count(where: { $0 == "\n" }) == 17)
        #expect(exported.output.contains(#""forgotten":{"on":"2"#) && !exported.output.contains("call back"))
        let audit = await run("log", "audit", on: log)
        #expect(audit.output.contains("forget") && audit.output.contains("public.fullrep, 4 changes in 1 segments"))
        #expect(!audit.output.contains("fullrep 5"))
        let again = await run("log", "forget", "fullrep", "5", "--json", "--go", on: log)
        #expect(again.exitCode == .notFound)
        #expect(
            again.output.contains(#""changes":0,"segments":0,"other_keys":0,"already_forgotten":4"#), "\(again.output)")
    }

    @Test func `a bundle of what was forgotten says so`() async throws {
        let log = try TemporaryLog()
        defer { log.remove() }
        #expect(await run("log", "forget", "fullrep", "5", "--go", on: log).exitCode == .ok)
        let bundle = TemporaryDirectory.make("forgotten") + "/it.bundle"
        let made = await run("bundle", bundle, "--unmask", "*", on: log)
        #expect(made.exitCode == .ok, "\(made.errors)")
        let told = await tidewireTests.run(["row", "fullrep", "5", "--log", bundle], commands: allCommands)
        #expect(told.output.contains("(forgotten on 2"), "\(told.output)\(told.errors)")
    }
}
