import EventLog
import Foundation
import History
import Postgres
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Relation of a command to the values in a log.
private enum Access {
    /// The command shows values, or writes them elsewhere. These are command lines that do.
    case shows([[String]])
    /// The command opens a log and shows no values. These are command lines that run on the log.
    case reads([[String]])
    /// The command opens no log. A command that asks a hub gets its answer from one of the other commands.
    case opensNone
}

/// Relation of every command to the values in a log. LOG, BUNDLE, NEW, TARGET and the logins stand for what the stage
/// has; NEW is a file that does not exist yet.
private let access: [String: Access] = [
    "tail": .shows([["--from", "oldest", "--presence"]]),
    "row": .shows([["people", "1"]]),
    "tx": .shows([["741"], ["742"]]),
    "asof": .shows([["people", "--to", "@2"], ["subscribers"]]),
    "stats": .shows([["--by", "operation"], []]),
    "event": .shows([["1"], ["3"], ["4"], ["5"]]),
    "who": .shows([["1", "--recorded"]]),
    "user": .shows([[SecretStage.user]]),
    "session": .shows([[]]),
    "why": .shows([
        [
            "--offset", "1", "--table", "people", "--claims", "claims", "--database-url", "HUB",
            "--policy-database-url", "POLICIES",
        ]
    ]),
    "whatif": .shows([["--policy", "new.sql", "--on", "TARGET", "--claims", "claims"]]),
    "leak": .shows([["--policy", "new.sql", "--on", "TARGET"]]),
    "bundle": .shows([["NEW"], ["NEW", "--policies"]]),
    "seed": .shows([["-o", "NEW"], []]),
    "replay": .shows([["--target", "TARGET", "--map", "subscribers=kept.readers", "--speed", "max", "--go"]]),
    "log export": .shows([[]]),
    "log info": .reads([[]]),
    "log verify": .reads([[]]),
    "log audit": .reads([[]]),
    // Shows recorded policies and rights, of which the stage has none, and no values of rows.
    "policies": .reads([]),
    "log forget": .reads([["people", "1"]]),
    "log accept-loss": .reads([["--yes"]]),
    "log import": .opensNone,
    // Runs the commands above, each with its own rules.
    "log ask": .opensNone,
    "open": .reads([["BUNDLE", "--settings"]]),
    "serve": .opensNone, "dev": .opensNone, "subs": .opensNone, "signal mark": .opensNone, "signal rotate": .opensNone,
    "signal pause": .opensNone, "signal resume": .opensNone, "signal backfill": .opensNone, "doctor": .opensNone,
    "db apply": .opensNone, "kick": .opensNone, "slot status": .opensNone, "slot drop": .opensNone,
    "cluster status": .opensNone, "cluster members": .opensNone, "cluster handover": .opensNone,
    // Reads where the log's last segment ends, and no entry of it.
    "cluster repair": .opensNone, "config": .opensNone,
    "bench": .opensNone, "completions": .opensNone, "version": .opensNone,
]

/// Every command that has no subcommands, with its full name.
private func leaves(_ commands: [any Command], _ prefix: String = "") -> [(name: String, command: any Command)] {
    commands.flatMap { command in
        command.subcommands.isEmpty
            ? [(prefix + command.name, command)] : leaves(command.subcommands, prefix + command.name + " ")
    }
}

/// Log with secrets whose hub has rules, a bundle of it, and a database with the same tables.
private final class RuledStage {
    let stage: SecretStage
    let database: TestDatabase
    let logins: DocumentedLogins
    let place = TemporaryDirectory.make("masked-commands")
    private var made = 0

    init() throws {
        stage = try SecretStage()
        database = try TestDatabase()
        logins = try database.documentedLogins()
        try database.applyAuth()
        try database.run(
            """
            GRANT USAGE ON SCHEMA public TO anon, authenticated;
            CREATE TABLE people (id int PRIMARY KEY, email text, access_token text, phones text,
                password text, address jsonb, settings jsonb, raw json, note text, diagnosis text);
            CREATE TABLE subscribers (email text PRIMARY KEY, n int);
            CREATE SCHEMA kept; CREATE TABLE kept.readers (email varchar(40) PRIMARY KEY, n int);
            ALTER TABLE people ENABLE ROW LEVEL SECURITY; ALTER TABLE people REPLICA IDENTITY FULL;
            GRANT SELECT ON people TO authenticated;
            CREATE POLICY own ON people FOR SELECT TO authenticated USING (diagnosis = auth.jwt() ->> 'diagnosis');
            CREATE PUBLICATION supabase_realtime FOR TABLE people, subscribers;
            """)
        try MaskRulesFile.write(Array(SecretStage.rules.utf8), in: DiskDirectory(stage.log.path))
        try Directories.make(place)
    }

    deinit {
        stage.log.remove()
        try? Directories.removeAll(place)
    }

    var newFile: String {
        made += 1
        return "\(place)/new-\(made)"
    }

    /// Runs a command line without rules of its own.
    func run(_ name: String, _ words: [String], own: String? = nil, new: String = "") async -> Run {
        let places = [
            "LOG": stage.log.path, "BUNDLE": "\(place)/bundle", "NEW": new, "TARGET": database.url,
            "HUB": logins.hubURL,
            "POLICIES": logins.policyURL,
        ]
        let log = name == "open" ? [] : ["--log", stage.log.path]
        let command = leaves(allCommands).first { $0.name == name }?.command
        let hasRules = command?.allOptions.contains { $0.name == "mask-rules" } ?? false
        return await tidewireTests.run(
            name.split(separator: " ").map(String.init) + words.map { places[$0] ?? $0 } + log
                + (own == nil || !hasRules ? [] : ["--mask-rules", "own"]),
            commands: allCommands,
            files: [
                "own": own ?? "", "new.sql": "ALTER POLICY own ON people USING (true)",
                "claims": #"{"role":"authenticated","sub":"7","diagnosis":"\#(SecretStage.secret)x"}"#,
            ])
    }

    /// Returns everything that a file holds. Files of a log in a bundle are returned as a reader sees them.
    static func contents(of path: String) throws -> String {
        guard Directories.isThere(path) else { return "" }
        let parent = try DiskDirectory(Directories.parent(of: path))
        let file = try parent.open(String(path.split(separator: "/").last ?? ""), for: .reading)
        var bytes = try file.contents(atMost: 64 << 20)
        if let bundle = try? LogBundle(path) {
            for name in try bundle.directory.names() {
                bytes += try bundle.directory.open(name, for: .reading).contents(atMost: 64 << 20)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Returns all rows that a replay wrote.
    func replayed() throws -> String {
        try ["people", "kept.readers"].map { table in
            try database.run("SELECT t::text FROM \(table) t").values.map { $0[0] ?? "" }.joined(separator: "\n")
        }.joined(separator: "\n")
    }
}

@Suite(.within(minutes: 10)) struct MaskedCommandsTests {
    @Test func `each command is known to show values of a log, or not to`() {
        let names = leaves(allCommands)
        for (name, command) in names {
            guard let access = access[name] else {
                Issue.record(
                    "'\(name)' is new: add it to `access`, with command lines that show values if it opens a log")
                continue
            }
            let opensLog = command.allOptions.contains { $0.name == "log" } && !["log import", "serve"].contains(name)
            switch access {
            case .opensNone: #expect(!opensLog, "'\(name)' has --log")
            case .shows:
                #expect(command.allOptions.contains { $0.name == "unmask" }, "'\(name)' shows values without --unmask")
            case .reads: #expect(opensLog || name == "open", "'\(name)' opens no log")
            }
        }
        #expect(Set(access.keys).subtracting(names.map(\.name)).isEmpty, "there is no such command any more")
    }

    @Test(arguments: [nil, "!*", "pin"] as [String?])
    func `each command obeys the rules in the log's directory, whatever rules its caller has`(own: String?) async throws
    {
        let stage = try RuledStage()
        #expect(await stage.run("bundle", ["\(stage.place)/bundle"]).exitCode == .ok)
        for (name, _) in leaves(allCommands) {
            let (lines, shows): ([[String]], Bool)
            switch access[name] {
            case .shows(let given): (lines, shows) = (given, true)
            case .reads(let given): (lines, shows) = (given, false)
            case .opensNone, nil: continue
            }
            var secrets = 0
            for line in lines {
                for form in name == "replay" || name == "bundle" || name == "seed" || name.hasPrefix("log ")
                    ? [[]] : [[], ["--json"]]
                {
                    try stage.database.run("TRUNCATE people, kept.readers")
                    let new = stage.newFile
                    let result = await stage.run(name, line + form, own: own, new: new)
                    #expect([.ok, .notFound].contains(result.exitCode), "\(name) \(line): \(result)")
                    #expect(!result.errors.hasPrefix("tidewire: "), "\(name) \(line): \(result.errors)")
                    let told = try [result.output, result.errors, RuledStage.contents(of: new), stage.replayed()]
                    for text in told {
                        #expect(!text.contains(SecretStage.secret), "\(name) \(line): \(text)")
                    }
                }
                guard shows else { continue }
                try stage.database.run("TRUNCATE people, kept.readers")
                let new = stage.newFile
                let open = await stage.run(name, line + ["--unmask", "*"], own: own, new: new)
                let told = try [open.output, RuledStage.contents(of: new), stage.replayed()]
                secrets += told.count { $0.contains(SecretStage.secret) }
            }
            // Commands that would show a secret if they could: the check above finds something.
            #expect(!shows || secrets > 0 || Self.neverWhole.contains(name), "\(name) shows no value in any case")
        }
    }

    /// Commands whose output has values only for some logs.
    private static let neverWhole: Set<String> = ["stats", "who", "whatif", "leak"]

    @Test func `each command shows nothing while the rules are damaged or unreadable`() async throws {
        let stage = try RuledStage()
        let directory = try DiskDirectory(stage.stage.log.path)
        let whole = try directory.open(MaskRulesFile.name, for: .reading).contents(atMost: 1 << 20)
        var altered = whole
        altered[altered.count - 2] ^= 1
        for damage in [[], Array(whole.prefix(9)), Array(whole.dropLast(3)), altered, Array("a.b.c.d\n".utf8)] {
            try directory.replace(MaskRulesFile.name, with: damage.span.bytes)
            for (name, _) in leaves(allCommands) {
                guard case .shows(let lines) = access[name] else { continue }
                for line in lines {
                    let new = stage.newFile
                    let result = await stage.run(name, line, new: new)
                    #expect(
                        result.exitCode == .unreachable && result.output.isEmpty && !Directories.isThere(new),
                        "\(name) \(line): \(result)")
                    #expect(result.errors.contains("the columns to mask are unknown"), "\(name): \(result.errors)")
                }
            }
        }
        try directory.remove(MaskRulesFile.name)
        try Directories.make(stage.stage.log.path + "/" + MaskRulesFile.name)
        let unreadable = await stage.run("tail", ["--from", "oldest"])
        #expect(unreadable.exitCode == .unreachable && unreadable.output.isEmpty, "\(unreadable)")
    }

    @Test func `a bundle carries the rules that it was made with, of the log and of its maker`() async throws {
        let stage = try RuledStage()
        let bundle = "\(stage.place)/own.bundle"
        let made = await stage.run("bundle", [bundle, "--unmask", "diagnosis", "--unmask", "n"], own: "n\n")
        #expect(made.exitCode == .ok, "\(made)")
        func read(_ words: String...) async -> Run {
            await tidewireTests.run(words + ["--log", bundle], commands: allCommands)
        }
        let row = await read("row", "people", "1")
        #expect(row.exitCode == .ok && !row.output.contains(SecretStage.secret), "\(row)")
        let key = await read("asof", "subscribers", "--json")
        #expect(key.output.unmarkedNumber == nil, "\(key)")
        let shown = await read("row", "people", "1", "--unmask", "diagnosis")
        #expect(shown.output.contains("diagnosis: \"\(SecretStage.secret)a\""), "\(shown)")
        for (asked, lost) in [("email", "public.people.email, public.subscribers.email"), ("api_key", "")] {
            let refused = await read("row", "people", "1", "--unmask", asked)
            #expect(refused.exitCode == .usage && refused.output.isEmpty, "\(refused)")
            #expect(
                refused.errors.contains("only marks for these values" + (lost.isEmpty ? "; " : " (\(lost))")),
                "\(refused)")
        }
        #expect(await read("row", "people", "1", "--unmask", "id").exitCode == .ok)
        let both = await read("tail", "--mask", "n", "--unmask", "n")
        #expect(both.exitCode == .usage && both.errors.contains("contradict each other"), "\(both)")
        // A bundle of the bundle keeps the rules.
        let second = "\(stage.place)/second.bundle"
        #expect(
            await tidewireTests.run(
                ["bundle", second, "--log", bundle, "--unmask", "diagnosis"], commands: allCommands
            ).exitCode == .ok)
        let again = await tidewireTests.run(["row", "people", "1", "--log", second], commands: allCommands)
        #expect(again.exitCode == .ok && !again.output.contains(SecretStage.secret), "\(again)")
    }

    @Test func `rules of several sets mask what any of them masks`() throws {
        let one = try MaskRules(file: "!*email*\nusers.pin\n")
        let two = try MaskRules(file: "secret_note\n!users.pin\n")
        let joined = one.joined(with: two)
        let again = try MaskRules(file: joined.text)
        let users = TableName(schema: "public", name: "users")
        for rules in [joined, again] {
            for column in ["email", "pin", "secret_note", "password"] { #expect(rules.masks(column, of: users)) }
            #expect(!rules.masks("body", of: users))
        }
        #expect(!one.masks("email", of: users) && !two.masks("pin", of: users))
    }

    /// A hub gets other rules while a command follows its log.
    @Test func `a command that follows a log obeys rules that change meanwhile`() async throws {
        let stage = try SecretStage()
        defer { stage.log.remove() }
        let directory = try DiskDirectory(stage.log.path)
        try MaskRulesFile.write([], in: directory)
        var renewal: RulesRenewal?
        var opened = 0
        renewal = RulesRenewal(HistoryLog(directory: directory, masking: Masking(try .obeying(directory, and: nil)))) {
            opened += 1
            return HistoryLog(directory: directory, masking: Masking(try .obeying(directory, and: nil)))
        }
        #expect(try renewal?.log() == nil && opened == 0)
        try MaskRulesFile.write(Array(SecretStage.rules.utf8), in: directory)
        let renewed = try #require(try renewal?.log())
        #expect(renewed.masking.masks("diagnosis", of: TableName(schema: "public", name: "people")))
        #expect(try renewal?.log() == nil && opened == 1)
        try directory.replace(MaskRulesFile.name, with: Array("a.b.c.d\n".utf8).span.bytes)
        #expect(throws: MaskRulesError.self) { try renewal?.log() }
    }
}

extension String {
    /// Number that the column n has in the output; nil if it is masked.
    fileprivate var unmarkedNumber: Substring? { firstMatch(of: /"n":(\d+)/)?.1 }
}
