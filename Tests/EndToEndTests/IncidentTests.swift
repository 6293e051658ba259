import Foundation
import System
import TestSupport
import Testing

/// Run of `tidewire dev --incident` by the built programs, with the answers of other commands about the incident.
private final class PlayedIncident {
    let directory = TemporaryDirectory.make("incident")
    private let process: ChildProcess
    /// Printed output.
    let text: String
    /// Printed output as objects, if JSON was requested.
    let lines: [[String: Any]]

    init(isJSON: Bool) throws {
        let output = TemporaryDirectory.make("incident") + "/output"
        let words = "dev --incident\(isJSON ? " --json" : "") --data-dir '\(directory)/data' --listen 127.0.0.1:0"
        process = try ChildProcess(
            ["/bin/sh", "-c", "exec '\(ServedHub.program)' \(words) 2>'\(output).errors'"], output: output)
        let process = process
        var text = ""
        try eventually("the incident", seconds: 600) {
            text = (try? String(contentsOfFile: output, encoding: .utf8)) ?? ""
            if text.contains(#"{"kind":"place","#) || text.contains("\nThe hub keeps running") { return true }
            guard process.isRunning else {
                let errors = (try? String(contentsOfFile: output + ".errors", encoding: .utf8)) ?? ""
                throw TookTooLong(description: "dev has ended: \(text)\(errors)")
            }
            return false
        }
        self.text = text
        lines = try isJSON ? text.split(separator: "\n").map { try Self.object($0) } : []
    }

    deinit {
        process.signal(SIGTERM)
        process.wait(milliseconds: 60_000)
    }

    static func object(_ line: some StringProtocol) throws -> [String: Any] {
        try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any] ?? [:]
    }

    /// URL of the database with the superuser's login.
    private var office: String {
        if let url = lines.last?["database_url"] as? String { return url }
        return text.firstMatch(of: /OFFICE='([^']*)'/).map { String($0.1) } ?? ""
    }
    var dataDirectory: String { directory + "/data" }

    struct Answer {
        var status: ChildProcess.Ending?
        var text: String
        var objects: [[String: Any]] {
            get throws { try text.split(separator: "\n").map { try PlayedIncident.object($0) } }
        }
    }

    /// Runs a command as the documentation page shows it, in the data directory or another one.
    func ask(_ command: String, in directory: String? = nil, knowsLog: Bool = true) throws -> Answer {
        let output = TemporaryDirectory.make("answer") + "/output"
        let programs = URL(fileURLWithPath: ServedHub.program).deletingLastPathComponent().path
        var environment = ["PATH": programs + ":/usr/bin:/bin", "OFFICE": office]
        environment["TIDEWIRE_DATA_DIR"] = knowsLog ? dataDirectory : directory
        let ending = try ChildProcess(
            ["/bin/sh", "-c", "cd '\(directory ?? dataDirectory)' && \(command)"], output: output,
            environment: environment
        ).wait(milliseconds: 180_000)
        return Answer(status: ending, text: try String(contentsOfFile: output, encoding: .utf8))
    }

    /// Returns the transaction id of a step.
    func xid(_ step: String) throws -> Int {
        let line = lines.first { $0["kind"] as? String == "step" && ($0["text"] as? String)?.hasPrefix(step) == true }
        return try #require(line?["xid"] as? Int, "\(step)")
    }

    /// Returns the log offset of a table's change in the transaction of a step.
    func offset(_ step: String, _ table: String = "notes") throws -> Int {
        let xid = try xid(step)
        let found = try ask("tidewire tail --from oldest --json").objects.filter {
            $0["xid"] as? Int == xid && $0["table"] as? String == table
        }
        return try #require(found.first?["offset"] as? Int, "\(step)")
    }
}

/// Page `docs/incident-walkthrough.md`: its commands, and the answers that it shows.
private struct IncidentPage {
    struct Exchange {
        var command: String
        var answer: String
    }

    static let path = URL(fileURLWithPath: #filePath).deletingLastPathComponent()
        .appendingPathComponent("../../docs/incident-walkthrough.md").standardizedFileURL.path

    let exchanges: [Exchange]

    init() throws {
        exchanges = try Self.blocks().dropFirst().flatMap { Self.exchanges(in: Self.block(of: $0)) }
    }

    var xids: Set<String> { exchanges.first.map { Self.xids(in: $0.answer) } ?? [] }

    /// Returns the page's text, split at the beginning of each console block.
    private static func blocks() throws -> [Substring] {
        try String(contentsOfFile: path, encoding: .utf8).split(
            separator: "```console\n", omittingEmptySubsequences: false)
    }

    private static func block(of part: Substring) -> Substring {
        part.split(separator: "```\n", maxSplits: 1, omittingEmptySubsequences: false)[0]
    }

    private static func exchanges(in block: Substring) -> [Exchange] {
        ("\n" + block).split(separator: "\n$ ").map { exchange in
            let lines = exchange.split(separator: "\n", maxSplits: 1, omittingEmptySubsequences: false)
            let answer = lines.count > 1 ? String(lines[1]) : ""
            return Exchange(command: String(lines[0]), answer: answer.hasSuffix("\n") ? answer : answer + "\n")
        }
    }

    /// Replaces each command and answer on the page by the ones found. Keeps the text around them.
    static func rewrite(_ found: [Exchange]) throws {
        var left = found[...]
        let parts = try blocks()
        var page = String(parts[0])
        for part in parts.dropFirst() {
            let block = block(of: part)
            page += "```console\n"
            for exchange in left.prefix(exchanges(in: block).count) {
                let answer = exchange.answer.replacing(/[ ]+\n/, with: "\n")
                page += "$ \(exchange.command)\n\(answer)"
            }
            left = left.dropFirst(exchanges(in: block).count)
            page += part.dropFirst(block.count)
        }
        try page.write(toFile: path, atomically: true, encoding: .utf8)
    }

    /// Returns the text without the parts that differ from run to run.
    static func pattern(of text: String, xids: Set<String> = []) -> String {
        let known: [(Regex<Substring>, String)] = [
            (/20\d\d-\d\d-\d\d[T ]/, ""), (/\d\d:\d\d:\d\d\.\d+Z?/, "TIME"), (/\*\*\* [0-9a-f]{8,16}/, "MARK"),
            (/[0-9a-f]{16}/, "ID"), (/[0-9A-F]+\/[0-9A-F]{6,}/, "LSN"), (/[0-9.]+ (?:B|kB|MB)/, "SIZE"),
            // A column of transaction ids is as wide as its longest id.
            (/[ ]+\n/, "\n"), (/[ ]+/, " "), (/\n[ ]/, "\n"),
        ]
        let text = known.reduce(text) { text, rule in text.replacing(rule.0, with: rule.1) }
        return xids.isEmpty ? text : text.replacing(/[0-9]+/) { xids.contains(String($0.output)) ? "XID" : $0.output }
    }

    static func xids(in text: String) -> Set<String> { Set(text.matches(of: /\(xid (\d+)\)/).map { String($0.1) }) }
}

/// Result of one change for one client.
private struct Fate: Hashable, Comparable, CustomStringConvertible {
    var user: String
    var topic: String
    /// Outcome for the client. How certain it is that the change arrived depends on the time of the question.
    var outcome: String

    init(_ user: String, _ topic: String, _ outcome: String) {
        (self.user, self.topic, self.outcome) = (user, topic, outcome)
    }

    init(_ line: [String: Any]) {
        let outcome = line["outcome"] as? String ?? ""
        self.init(
            line["user"] as? String ?? "", line["topic"] as? String ?? "",
            ["received": "sent", "received_later": "sent_later"][outcome] ?? outcome)
    }

    var description: String { "\(user.suffix(4)) \(topic) \(outcome)" }
    static func < (one: Fate, other: Fate) -> Bool { one.description < other.description }
}

private let ana = "00000000-0000-4000-8000-00000000a0a0"
private let ben = "00000000-0000-4000-8000-00000000be00"
private let (listing, toasts) = ("realtime:listing-5", "realtime:toasts")

extension EndToEndPrograms {
    @Suite(.within(minutes: 30)) struct IncidentTests {
        @Test func `every command answers as it was`() throws {
            let incident = try PlayedIncident(isJSON: true)
            try whatWasHeard(incident)
            try whoWasTold(incident)
            try whatHappened(incident)
            try whatWouldHaveBeen(incident)
            try elsewhere(incident)
        }

        private func whatWasHeard(_ incident: PlayedIncident) throws {
            let heard = incident.lines.filter { $0["kind"] as? String == "heard" }.map { line in
                "\(line["device"] ?? ""): \(line["op"] ?? "") \(line["table"] ?? "") \(line["row"] ?? "")"
            }
            #expect(
                heard == [
                    "ana's phone: INSERT notes 1", "ana's phone: UPDATE notes 1", "ana's phone: INSERT notes 3",
                    "ana's phone: INSERT notes 4", "ana's phone: INSERT notes 5", "ana's phone: DELETE notes 1",
                    "ben's phone: INSERT notes 1", "ben's phone: INSERT toasts 1", "ben's phone: INSERT notes 4",
                    "ben's phone: INSERT notes 5", "ben's phone: DELETE notes 1",
                ])
        }

        private func whoWasTold(_ incident: PlayedIncident) throws {
            let answers: [(String, String, [Fate], String)] = [
                (
                    "ana writes note 1", "notes", [Fate(ana, listing, "sent"), Fate(ben, listing, "sent")], ""
                ),
                (
                    "ana writes note 2", "notes",
                    [
                        Fate(ana, listing, "not_matched"), Fate(ben, listing, "not_matched"),
                        Fate(ben, listing, "not_matched"),
                    ], "filter listing=eq.5 is false"
                ),
                (
                    "ana changes note 1", "notes",
                    [
                        Fate(ana, listing, "sent"), Fate(ben, listing, "not_matched"),
                        Fate(ben, listing, "not_matched"),
                    ],
                    #"policy "colleagues read notes" is false"#
                ),
                (
                    "ana writes note 3", "notes",
                    // Ben's phone was disconnected. It resumed from before the note, and the note did not match for Ben
                    // then.
                    [Fate(ana, listing, "sent"), Fate(ben, listing, "not_matched"), Fate(ben, listing, "not_matched")],
                    #"policy "colleagues read notes" is false"#
                ),
                (
                    "ben is put on listing 5 again", "toasts",
                    [
                        Fate(ben, toasts, "ended_before"), Fate(ben, toasts, "ended_before"),
                        Fate(ben, toasts, "sent_later"),
                    ], ""
                ),
                (
                    "ben writes note 4", "notes",
                    // Ana reconnected after the deploy, when the migration had already been undone.
                    [
                        Fate(ana, listing, "not_matched"), Fate(ana, listing, "sent_later"),
                        Fate(ben, listing, "ended_before"), Fate(ben, listing, "sent"),
                    ], #"policy "colleagues read notes" is false because author = auth.uid() is false"#
                ),
            ]
            for (step, table, fates, reason) in answers {
                let offset = try incident.offset(step, table)
                let answer = try incident.ask("tidewire who @\(offset) --json")
                #expect(try answer.objects.map { Fate($0) }.sorted() == fates.sorted(), "\(step): \(answer.text)")
                let reasons = try answer.objects.compactMap { line in
                    line["outcome"] as? String == "not_matched" ? line["reason"] as? String : nil
                }
                for found in reasons { #expect(found.contains(reason), "\(step): \(found)") }
            }
        }

        private func whatHappened(_ incident: PlayedIncident) throws {
            let changed = try incident.offset("ana changes note 1")
            let versions = try incident.ask("tidewire row office.notes 1 --json").objects
            let steps = ["ana writes note 1", "ana changes note 1", "ana deletes note 1"]
            #expect(versions.compactMap { $0["op"] as? String } == ["INSERT", "UPDATE", "DELETE"])
            #expect(try versions.compactMap { $0["xid"] as? Int } == steps.map { try incident.xid($0) })
            #expect(
                (versions[1]["diff"] as? [String: [String: String]])
                    == ["body": ["old": "call back", "new": "called: 420 000"]], "\(versions[1])")

            let transaction = try incident.xid("ben is put on listing 5 again")
            let changes = try incident.ask("tidewire tx \(transaction) --json").objects
            #expect(changes.compactMap { $0["table"] as? String } == ["colleagues", "toasts"], "\(changes)")

            let before = try incident.ask("tidewire asof office.colleagues --to @\(changed) --json").objects
            let after = try incident.ask("tidewire asof office.colleagues --json").objects
            #expect(Self.colleagues(before) == ["5 a0a0", "7 a0a0"], "\(before)")
            #expect(Self.colleagues(after) == ["5 a0a0", "5 be00", "7 a0a0"], "\(after)")

            let notes = try incident.ask("tidewire user \(ben) --json").objects
            let events = notes.filter { $0["topic"] as? String == listing }.compactMap { $0["event"] as? String }
            #expect(events == ["joined", "left", "joined", "left", "joined", "left"], "\(notes)")
            let goings = notes.compactMap { $0["reason"] as? String }.filter { $0.hasPrefix("went on from") }
            #expect(goings.count == 4, "his phone came back twice, with two channels each time: \(notes)")

            let why = "tidewire why --table office.notes --role authenticated"
            let him = try incident.ask("\(why) --sub \(ben) --offset \(changed) --json")
            #expect(try him.status == .exited(1) && him.objects.first?["told"] as? Bool == false, "\(him)")
            let her = try incident.ask("\(why) --sub \(ana) --offset \(changed) --json")
            #expect(try her.status == .exited(0) && her.objects.first?["told"] as? Bool == true, "\(her)")
            let event = try incident.ask("tidewire event @\(changed) --json").objects
            #expect(event.first?["xid"] as? Int == (try incident.xid("ana changes note 1")), "\(event)")
        }

        private static func colleagues(_ rows: [[String: Any]]) -> [String] {
            rows.compactMap { $0["record"] as? [String: Any] }
                .map { "\($0["listing"] ?? "") \(($0["person"] as? String ?? "").suffix(4))" }.sorted()
        }

        /// Checks the prediction: with the migration, Ana would see all notes except Ben's, and Ben would see the notes
        /// from his time on the listing.
        private func whatWouldHaveBeen(_ incident: PlayedIncident) throws {
            let answer = try incident.ask("tidewire whatif --policy migration.sql --on \"$OFFICE\" --json")
            let lines = try answer.objects.filter {
                $0["kind"] as? String == "holder" && $0["table"] as? String == "notes"
            }
            let found = lines.map { line in
                "\((line["user"] as? String ?? "").suffix(4)) \(line["told_now"] ?? "") \(line["told_then"] ?? "") "
                    + "\(line["gains"] ?? "") \(line["losses"] ?? "")"
            }
            #expect(found.sorted() == ["a0a0 7 6 0 1", "be00 4 1 0 3"], "\(answer.text)")
        }

        /// Checks that a bundle alone gives the same answers, and that no secret appears in it or in the answers.
        private func elsewhere(_ incident: PlayedIncident) throws {
            let there = TemporaryDirectory.make("elsewhere")
            let made = try incident.ask("tidewire bundle '\(there)/incident.bundle' --policies --note 'notes vanish'")
            #expect(made.status == .exited(0), "\(made.text)")
            let secrets = ["+44 20 7946 0958", "@office.example"]
            let bytes = try Data(contentsOf: URL(fileURLWithPath: there + "/incident.bundle"))
            for secret in secrets { #expect(bytes.range(of: Data(secret.utf8)) == nil) }
            let commands = incident.lines.compactMap { $0["command"] as? String }.filter { !$0.contains("bundle") }
            #expect(commands.count > 10)
            for command in commands {
                for form in command.contains("whatif") ? [""] : ["", " --json"] {
                    let here = try incident.ask(command + form)
                    for secret in secrets { #expect(!here.text.contains(secret), "\(command): \(here.text)") }
                    if ["whatif", "stats"].contains(where: command.contains) { continue }
                    let found = try incident.ask(command + form + " --log incident.bundle", in: there, knowsLog: false)
                    #expect(found.status == here.status, "\(command): \(found.text)")
                    #expect(IncidentPage.pattern(of: found.text) == IncidentPage.pattern(of: here.text), "\(command)")
                }
            }
        }

        /// Checks the page against the program's answers. With REWRITE_PAGES set, writes the answers into the page
        /// instead, and keeps the text around them.
        @Test func `the page about incidents has what the program says`() throws {
            let incident = try PlayedIncident(isJSON: false)
            let story = incident.text.split(separator: "\n\nThe event log has all of it now", maxSplits: 1)[0] + "\n"
            let questions = incident.text.split(separator: "\n").filter { $0.hasPrefix("  tidewire ") }
                .map { $0.trimmingCharacters(in: .whitespaces) }
            var found = [IncidentPage.Exchange(command: "tidewire dev --incident", answer: String(story))]
            for question in questions {
                found.append(IncidentPage.Exchange(command: question, answer: try incident.ask(question).text))
            }
            if ProcessInfo.processInfo.environment["REWRITE_PAGES"] != nil { try IncidentPage.rewrite(found) }
            let page = try IncidentPage()
            let (there, here) = (page.xids, IncidentPage.xids(in: incident.text))
            #expect(page.exchanges.count == found.count)
            for (written, said) in zip(page.exchanges, found) {
                #expect(
                    IncidentPage.pattern(of: written.command, xids: there)
                        == IncidentPage.pattern(of: said.command, xids: here))
                let (one, other) = (
                    IncidentPage.pattern(of: written.answer, xids: there),
                    IncidentPage.pattern(of: said.answer, xids: here)
                )
                // If two sockets end at the same moment, the kernel decides which end is recorded first.
                let isOfEnds = said.command.hasPrefix("tidewire user")
                #expect(
                    isOfEnds
                        ? one.split(separator: "\n").sorted() == other.split(separator: "\n").sorted() : one == other,
                    "\(said.command)")
            }
        }
    }
}
