import Change
import Console
import Embedded
import EventLog
import Foundation
import History
import Postgres
import Rehearsal
import Replication
import Server
import Settings
import System

/// Hub of `tidewire dev`. The demonstration of an incident restarts it.
final class DevHub {
    private let configuration: Configuration
    private(set) var hub: Hub

    /// Settings for a fast incident with a reproducible order: the hub closes clients without a drain time, and one
    /// socket loop serves all clients.
    static let hurried = [
        SettingOverride(Setting(\.drainTime), "0s", from: .command("tidewire dev")),
        SettingOverride(Setting(\.loops), "1", from: .command("tidewire dev")),
        // A device only listens, so an idle timeout would disconnect it.
        SettingOverride(Setting(\.idleTimeout), "0", from: .command("tidewire dev")),
    ]

    init(_ configuration: Configuration) throws {
        self.configuration = configuration
        hub = try Hub(configuration)
    }

    func stop() { hub.stop() }

    /// Address of the web console; nil if the hub does not serve it.
    var console: String? {
        let isServed =
            configuration.console == .loopback || configuration.console == .on && configuration.operatorSecret != nil
        let scheme = configuration.tls == nil ? "http" : "https"
        return isServed ? "\(scheme)://\(configuration.listen.host):\(hub.port)/console/" : nil
    }

    /// Stops the hub, runs `meanwhile`, and starts a hub with the same configuration. Returns once it streams.
    func restart(_ meanwhile: () throws -> Void) throws {
        hub.stop()
        try meanwhile()
        hub = try Hub(configuration)
        try awaitStream()
    }

    static let advice = "Look at the lines of the hub above; a slow machine may need a second attempt."

    /// Waits until the hub receives the replication stream, so that it records all later commits. Throws after three
    /// minutes.
    func awaitStream() throws {
        for _ in 0..<1800 {
            if hub.status.isStreaming { return }
            usleep(100_000)
        }
        throw CommandFailure(
            .unreachable, "the hub did not begin to follow its database within three minutes", hint: DevHub.advice)
    }
}

/// Demonstration of `tidewire dev --incident`: plays the incident, then prints questions about it with commands that
/// answer them.
struct IncidentShow {
    let directory: String
    let database: DemoDatabase
    let secret: String
    let hub: DevHub
    let terminal: Terminal
    let isJSON: Bool

    private var logDirectory: String { directory + "/log" }
    private var migrationFile: String { directory + "/migration.sql" }

    func run() throws {
        try hub.awaitStream()
        let connection = try database.cluster.connect()
        let isNew = try connection.query("SELECT 1 FROM office.colleagues LIMIT 1").isEmpty
        if isNew {
            let stage = IncidentStage(
                connection, secret: secret, port: { hub.hub.port }, deploy: hub.restart, awaitCatalog: awaitCatalog,
                say: say)
            let incident = Incident(stage)
            try incident.play()
            try awaitEnds()
            try Incident.migration.appending("\n").write(toFile: migrationFile, atomically: true, encoding: .utf8)
            if isJSON { for heard in incident.heard { try terminal.print(json(heard)) } }
        } else {
            terminal.complain("The incident in \(directory) has happened already; these are the questions about it.")
        }
        try printQuestions()
        try terminal.flush()
    }

    /// Waits until the log has a record of the catalog that was read after `time` (microseconds since 1970).
    private func awaitCatalog(since time: Int64) throws {
        for _ in 0..<1800 {
            var reader = try EventLogReader(
                directory: DiskDirectory(logDirectory), from: .oldest, matchingAnyOf: [RowKey.catalog])
            while try reader.next() {
                guard reader.entry.kind == .catalogRecord else { continue }
                let records = try CatalogRecordCodec.decode(reader.payload)
                if records.contains(where: { $0.time >= time && $0.roles.contains("authenticated") }) { return }
            }
            usleep(100_000)
        }
        throw CommandFailure(
            .unreachable, "the log did not get a record of the catalog within three minutes", hint: DevHub.advice)
    }

    /// Waits until the ledger has an end for each join of a client. Otherwise the answers to the questions would vary.
    private func awaitEnds() throws {
        let log = try historyLog()
        for _ in 0..<1800 {
            var there = 0
            try log.ledger(LedgerQuery()) { recorded in
                if recorded.note.event == .joined { there += 1 }
                if recorded.note.event == .left { there -= 1 }
            }
            if there <= 0 { return }
            usleep(100_000)
        }
        throw CommandFailure(
            .unreachable, "the log did not get the end of every client within three minutes", hint: DevHub.advice)
    }

    /// Opens the log of the demonstration's hub, masked by the rules of that hub.
    private func historyLog() throws -> HistoryLog {
        let directory = try DiskDirectory(logDirectory)
        return HistoryLog(directory: directory, masking: Masking(try .obeying(directory, and: nil)))
    }

    // MARK: The incident

    /// Prints a step of the incident.
    private func say(_ step: IncidentStep) throws {
        if isJSON {
            var line = JSONLine()
            line.add("kind", "step")
            line.add("time", TimeText.json(step.time))
            line.add("xid", json: step.xid ?? "null")
            line.add("text", step.text.trimmingCharacters(in: .whitespaces))
            try terminal.print(line.text)
        } else {
            let time = DisplayZone.utc.text(step.time).suffix(12)
            try terminal.print("\(time)  \(step.text)" + (step.xid.map { "  (xid \($0))" } ?? ""))
        }
        try terminal.flush()
    }

    /// Returns the JSON of a change that a device received.
    private func json(_ heard: Heard) -> String {
        var line = JSONLine()
        line.add("kind", "heard")
        line.add("device", heard.device)
        line.add("topic", heard.topic)
        line.add("op", heard.operation)
        line.add("table", heard.table)
        line.add("row", heard.row)
        return line.text
    }

    // MARK: Questions

    private func printQuestions() throws {
        let log = try historyLog()
        let questions = try IncidentQuestions(log)
        guard !isJSON else {
            for question in questions.all {
                var line = JSONLine()
                line.add("kind", "question")
                line.add("text", question.text)
                line.add("command", question.command)
                try terminal.print(line.text)
            }
            var line = JSONLine()
            line.add("kind", "place")
            line.add("data_dir", directory)
            line.add("migration", migrationFile)
            line.add("database_url", database.superuserURL)
            line.add("console_url", hub.console)
            return try terminal.print(line.text)
        }
        let asked = questions.all.map { "  # \($0.text)\n  \($0.command)" }
        try terminal.print(
            """

            The event log has all of it now.
            \(hub.console.map { "See it in a browser: \($0)#/change/\(questions.changed.dropFirst())\n" } ?? "")
            Ask the log, in another terminal:

              export TIDEWIRE_DATA_DIR=\(directory)
              export OFFICE='\(database.superuserURL)'
              cd \(directory)

            \(asked.joined(separator: "\n"))

            The hub keeps running, for your own clients and changes. Ctrl-C stops everything; the log stays.
            """)
    }
}

/// Questions that an engineer would ask after the incident. Each has the command that answers it, with the offsets of
/// this log.
struct IncidentQuestions {
    struct Question {
        var text: String
        var command: String
    }

    private(set) var all: [Question] = []
    /// Position of the change that the first questions are about, such as `@6`.
    private(set) var changed = ""

    init(_ log: HistoryLog) throws {
        var changes: [String: RecordedChange] = [:]
        var reader = try HistoryReader(log, HistoryQuery(from: nil, to: nil))
        while let item = try reader.next() {
            guard case .change(let change) = item, let relation = change.relation?.relation,
                relation.schema == "office", let key = change.key.first?.value.plainText
            else { continue }
            changes["\(change.operation.name) \(relation.name) \(key)"] = change
        }
        func find(_ name: String) throws -> RecordedChange {
            if let change = changes[name] { return change }
            throw CommandFailure(
                .notFound, "the incident in this log is not complete",
                hint: "Delete the directory, and run the command again.")
        }
        let toast = try find("INSERT toasts 1")
        let offsets = try [
            "UPDATE notes 1", "INSERT notes 2", "INSERT notes 3", "INSERT notes 4", "INSERT notes 5",
        ].map { "@\(try find($0).offset)" }
        changed = offsets[0]
        all = Self.questions(
            changed: offsets[0], elsewhere: offsets[1], away: offsets[2], migrated: offsets[3], deployed: offsets[4],
            toast: "@\(toast.offset)", xid: toast.transaction.xid)
    }

    private static func questions(
        changed: String, elsewhere: String, away: String, migrated: String, deployed: String, toast: String,
        xid: UInt32
    ) -> [Question] {
        let why = "tidewire why --table office.notes --role authenticated --sub"
        return [
            ("What happened to note 1?", "tidewire row office.notes 1"),
            ("Ben missed a change of it. Who was told, who was not, and why?", "tidewire who \(changed)"),
            ("Condition by condition:", "\(why) \(Incident.ben.id) --offset \(changed)"),
            ("Who worked on what, right before?", "tidewire asof office.colleagues --to \(changed)"),
            ("What is known of that change?", "tidewire event \(changed)"),
            ("Why did nobody hear of note 2?", "tidewire who \(elsewhere)"),
            ("And ben of note 3, when he was back?", "tidewire who \(away)"),
            ("Ben says that a toast was lost. Who was sent it?", "tidewire who \(toast)"),
            ("What happened to ben's devices?", "tidewire user \(Incident.ben.id)"),
            ("What else came with that toast?", "tidewire tx \(xid)"),
            ("Ana saw note 4 only after the deploy. Why?", "tidewire who \(migrated)"),
            ("Condition by condition:", "\(why) \(Incident.ana.id) --offset \(migrated)"),
            ("What would the migration have said before?", "tidewire whatif --policy migration.sql --on \"$OFFICE\""),
            ("Note 5 came during a deploy. Who got it?", "tidewire who \(deployed)"),
            ("What happened when?", "tidewire tail --from oldest"),
            ("How much, of what?", "tidewire stats"),
            ("All of it for a colleague, masked:", "tidewire bundle incident.bundle --policies --note 'notes vanish'"),
            ("What did the colleague get?", "tidewire open incident.bundle"),
            ("There, with nothing else installed:", "tidewire who \(changed) --log incident.bundle"),
        ].map { Question(text: $0, command: $1) }
    }
}
