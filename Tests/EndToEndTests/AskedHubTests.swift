import Embedded
import Foundation
import History
import Ingest
import System
import TestSupport
import Testing
import TidewireClient

/// Tests that ask the same questions of a log's files and of the running hub, and compare the answers.
extension EndToEndPrograms {
    @Suite(.serialized) struct AskedHubTests {
        private struct Answer: Equatable, CustomStringConvertible {
            var output: String
            var code: Int32?

            var description: String { "status \(code.map(String.init) ?? "none"): \(output)" }
        }

        private static func tidewire(
            _ words: [String], environment: [String: String] = [:], withErrors: Bool = false
        ) throws -> Answer {
            let variables = ["OPERATOR_TOKEN": HubForApps.operatorToken].merging(environment) { $1 }
            let (text, code) = try said(
                by: [ServedHub.program] + words, environment: variables, withErrors: withErrors)
            // Masking marks differ from run to run.
            let plain = text.replacing(/\*\*\* [0-9a-f]{8,16}/, with: "*** MARK")
            return Answer(output: plain, code: code)
        }

        /// Starts a hub.
        ///
        /// - Parameter before: SQL that runs before the log begins.
        private static func started(_ options: [String: String] = [:], before: String? = nil) throws -> HubForApps {
            var options = options
            options["TIDEWIRE_OPERATOR_JWT_SECRET"] = HubForApps.operatorSecret
            let hub = try HubForApps(options)
            if let before { _ = try hub.ask(before) }
            try hub.start()
            let log = IngestService.Settings.logDirectory(hub.dataDirectory)
            try eventually("the hub to follow") {
                let said = try? String(contentsOfFile: hub.dataDirectory + "/serve.log", encoding: .utf8)
                return said?.contains(" streaming ") == true
            }
            _ = try hub.ask(
                "INSERT INTO reminders (owner_id, message) VALUES ('\(UUID())', 'one'), ('\(UUID())', 'two')")
            _ = try hub.ask("UPDATE reminders SET message = 'three' WHERE message = 'one'")
            try eventually("the log to have it") {
                try tidewire(["tail", "--from", "oldest", "--log", log]).output.contains("three")
            }
            return hub
        }

        /// Waits until the hub answers requests, some time after its start.
        private static func awaitAnswers(_ hub: HubForApps) throws {
            let question = ["log", "audit", "--server", "http://127.0.0.1:\(hub.port)"]
            try eventually("the hub to answer") { try tidewire(question).code != 4 }
        }

        /// Lets a client join, and waits until the log has the catalog with the rights of the client's role. Before
        /// that, `why` uses the current catalog. Later it would refuse to answer, because the rights at the change are
        /// not recorded.
        private static func awaitRights(_ hub: HubForApps, _ log: String) throws {
            let question = [
                "why", "--table", "reminders", "--offset", "2", "--role", "authenticated", "--sub", "\(UUID())",
                "--log", log,
            ]
            try onThisThread {
                var batches = hub.client(UUID()).live(Listed.self, window: .immediate).makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                try eventually("the log to have the rights of the role") {
                    try tidewire(question).output.contains("rights and policies are those of then")
                }
            }
        }

        @Test func `a hub answers as its files do`() throws {
            let hub = try Self.started()
            let (log, url) = (IngestService.Settings.logDirectory(hub.dataDirectory), "http://127.0.0.1:\(hub.port)")
            try Self.awaitRights(hub, log)
            let id = try #require(try hub.ask("SELECT id FROM reminders WHERE message = 'three'").first?.first ?? nil)
            let xid = try #require(
                try hub.ask("SELECT xmin FROM reminders WHERE message = 'three'").first?.first ?? nil)
            let questions: [[String]] = [
                ["tail", "--from", "oldest"], ["tail", "--from", "oldest", "--json", "--where", "message=eq.two"],
                ["tail", "--from", "oldest", "-o", "csv"], ["row", "reminders", id],
                ["row", "reminders", id, "--json"],
                ["row", "reminders", "\(UUID())"], ["tx", xid], ["tx", "4000000000"],
                ["asof", "reminders", "-o", "md"],
                ["stats"], ["event", "@1"], ["event", "@999999"], ["who", "@1", "--recorded"], ["user", "nobody"],
                ["log", "audit"], ["tail", "--from", "sometime"],
                ["why", "--table", "reminders", "--key", "id=\(id)", "--role", "authenticated", "--sub", "\(UUID())"],
            ]
            var settings = [
                "TIDEWIRE_DATABASE_URL": hub.databaseURL, "TIDEWIRE_POLICY_DATABASE_URL": hub.policyURL,
            ]
            for words in questions {
                let ofFiles = try Self.tidewire(words + ["--log", log], environment: settings)
                let ofHub = try Self.tidewire(words + ["--server", url])
                #expect(ofHub == ofFiles, "\(words)")
            }
            // The log grows during this check.
            let verdict = try Self.tidewire(["log", "verify", "--server", url])
            #expect(verdict.code == 0 && verdict.output.hasPrefix("every checksum is correct"), "\(verdict)")
            // The hub's audit records each unmasking, and the audience that the reader named.
            let unmasking = ["tail", "--from", "oldest", "--unmask", "message", "--server", url]
            #expect(try Self.tidewire(unmasking).code == 2)
            #expect(try Self.tidewire(unmasking + ["--because", "ticket 17"]).code == 0)
            let audit = try Self.tidewire(["log", "audit", "--server", url]).output
            #expect(
                audit.contains("ops@example.com (operators' API)") && audit.contains("because: ticket 17"), "\(audit)")
            let reads = try Self.tidewire(["log", "audit", "--reads", "--server", url]).output
            #expect(reads.contains("tail") && reads.contains("key=…") && !reads.contains(id), "\(reads)")
            settings = [:]
            let bundle = TemporaryDirectory.make("bundle") + "/a.bundle"
            #expect(try Self.tidewire(["bundle", bundle, "--server", url]).code == 0)
            let opened = try Self.tidewire(["row", "reminders", id, "--log", bundle])
            #expect(opened == (try Self.tidewire(["row", "reminders", id, "--log", log])))
            let left = try FileManager.default.contentsOfDirectory(atPath: hub.dataDirectory)
            #expect(!left.contains { $0.hasPrefix("question-") }, "\(left)")
        }

        /// Returns a directory with only the program and the libraries to which it is linked.
        private static func emptyRoot() throws -> String {
            let root = TemporaryDirectory.make("root")
            let files = FileManager.default
            func put(_ path: String, at place: String) throws {
                let there = URL(fileURLWithPath: root + place)
                try files.createDirectory(at: there.deletingLastPathComponent(), withIntermediateDirectories: true)
                try files.copyItem(at: URL(fileURLWithPath: path).resolvingSymlinksInPath(), to: there)
            }
            try put(ServedHub.program, at: "/tidewire")
            let linked = TemporaryDirectory.make("linked") + "/output"
            #expect(
                try ChildProcess(["/usr/bin/ldd", ServedHub.program], output: linked).wait(milliseconds: 60_000)
                    == .exited(0))
            for line in try String(contentsOfFile: linked, encoding: .utf8).split(separator: "\n") {
                guard let library = line.firstMatch(of: /\/[^ ]+/).map({ String($0.output) }) else { continue }
                try put(library, at: library)
            }
            return root
        }

        @Test func `a bundle opens in an empty root, without a database and a configuration`() throws {
            let hub = try Self.started()
            let log = IngestService.Settings.logDirectory(hub.dataDirectory)
            let id = try #require(try hub.ask("SELECT id FROM reminders WHERE message = 'three'").first?.first ?? nil)
            let xid = try #require(
                try hub.ask("SELECT xmin FROM reminders WHERE message = 'three'").first?.first ?? nil)
            let root = try Self.emptyRoot()
            #expect(try Self.tidewire(["bundle", root + "/a.bundle", "--log", log]).code == 0)
            // A user other than root becomes root in a new namespace.
            let enter = geteuid() == 0 ? ["/usr/sbin/chroot"] : ["/usr/bin/unshare", "--map-root-user", "--root"]
            let questions = [
                ["tail", "--from", "oldest"], ["row", "reminders", id, "--json"], ["tx", xid],
                ["asof", "reminders"], ["stats"], ["event", "@1"], ["who", "@1", "--recorded"],
                ["log", "verify"],
            ]
            for words in questions + [["open", "/a.bundle"]] {
                let isOpen = words[0] == "open"
                let output = TemporaryDirectory.make("process") + "/output"
                let child = try ChildProcess(
                    enter + [root, "/tidewire"] + words + (isOpen ? [] : ["--log", "/a.bundle"]), output: output,
                    isOnlyEnvironment: true)
                let ending = child.wait(milliseconds: 60_000)
                let outside = try Self.tidewire(
                    isOpen ? ["open", root + "/a.bundle"] : words + ["--log", root + "/a.bundle"], withErrors: true)
                let said = try String(contentsOfFile: output, encoding: .utf8)
                    .replacing(/\*\*\* [0-9a-f]{8,16}/, with: "*** MARK")
                #expect(ending == outside.code.map(ChildProcess.Ending.exited), "\(words): \(said)")
                #expect(said == outside.output.replacing(root, with: ""), "\(words)")
            }
        }

        @Test func `a hub that runs forgets a row, and goes on`() throws {
            let hub = try Self.started()
            let (log, url) = (IngestService.Settings.logDirectory(hub.dataDirectory), "http://127.0.0.1:\(hub.port)")
            let id = try #require(try hub.ask("SELECT id FROM reminders WHERE message = 'three'").first?.first ?? nil)
            // This reader is in the segment that `log forget` replaces.
            let history = HistoryLog(directory: try DiskDirectory(log), masking: .nothing)
            var standing = try HistoryReader(history, HistoryQuery(from: .oldest))
            _ = try #require(try standing.next())

            let words = ["log", "forget", "reminders", id, "--server", url]
            let asked = try Self.tidewire(words)
            #expect(asked.code == 0 && asked.output.hasPrefix("would forget 2 changes of public.reminders"), "\(asked)")
            #expect(try Self.tidewire(["row", "reminders", id, "--log", log]).output.contains("three"))
            let stranger = ["OPERATOR_TOKEN": hub.token(UUID())]
            #expect(try Self.tidewire(words + ["--go"], environment: stranger).code == 4)
            let done = try Self.tidewire(words + ["--go"])
            #expect(done.code == 0 && done.output.contains("2 changes of public.reminders"), "\(done)")
            #expect(done.output.contains(": done\n"), "\(done)")

            let row = try Self.tidewire(["row", "reminders", id, "--log", log])
            #expect(row.output.contains("(forgotten on 2") && !row.output.contains("three"), "\(row)")
            #expect(try Self.tidewire(["tail", "--from", "oldest", "--log", log]).output.contains("two"))
            let verdict = try Self.tidewire(["log", "verify", "--log", log])
            #expect(verdict.code == 0 && verdict.output.contains("2 changes were forgotten"), "\(verdict)")
            for name in try FileManager.default.contentsOfDirectory(atPath: log) {
                let bytes = try Data(contentsOf: URL(fileURLWithPath: log + "/" + name))
                #expect(bytes.firstRange(of: Data("three".utf8)) == nil, "\(name)")
                #expect(!name.hasPrefix("erasure.plan") && name != "erasure.segment", "\(name)")
            }
            let audit = try Self.tidewire(["log", "audit", "--log", log, "--json"]).output
            #expect(audit.contains(#""action":"forget""#) && audit.contains("operators' API"), "\(audit)")
            #expect(!audit.contains(id))
            // New changes are written and read after the rewritten segment, even by the reader that has the old file
            // open.
            _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(UUID())', 'four')")
            try eventually("the log to have it") {
                try Self.tidewire(["tail", "--from", "oldest", "--log", log]).output.contains("four")
            }
            var offsets: [UInt64] = []
            while let item = try standing.next() {
                if case .change(let change) = item { offsets.append(change.offset) }
            }
            #expect(!offsets.isEmpty && zip(offsets, offsets.dropFirst()).allSatisfy { $0 + 1 == $1 }, "\(offsets)")
            let again = try Self.tidewire(words + ["--go", "--json"])
            #expect(again.code == 1 && again.output.contains(#""changes":0,"#), "\(again)")
            #expect(again.output.contains(#""already_forgotten":2"#) && again.output.contains(#""done":false"#))
        }

        /// Checks a window for which the hub needs another database, and an answer larger than one response.
        @Test func `what would have been, and what is played again, is asked of a hub too`() throws {
            let hub = try Self.started()
            let (log, url) = (IngestService.Settings.logDirectory(hub.dataDirectory), "http://127.0.0.1:\(hub.port)")
            let secret = "planted-\(UUID())"
            _ = try hub.ask(
                "INSERT INTO reminders (owner_id, message) SELECT gen_random_uuid(), '\(secret)-' || n || repeat('x', 300) "
                    + "FROM generate_series(1, 20000) n")
            try eventually("the log to have it") {
                try Self.tidewire(["stats", "--log", log]).output.contains("20003")
            }
            let tail = ["tail", "--from", "oldest", "--json"]
            let (ofFiles, ofHub) = (
                try Self.tidewire(tail + ["--log", log]), try Self.tidewire(tail + ["--server", url])
            )
            #expect(ofHub == ofFiles && ofHub.output.utf8.count > 8 << 20, "\(ofHub.output.utf8.count)")
            let masked = ["--mask", "message"]
            let proposal = TemporaryDirectory.make("whatif") + "/new.sql"
            try "REVOKE SELECT ON reminders FROM authenticated".write(
                toFile: proposal, atomically: true, encoding: .utf8)
            let whatIf = [
                "whatif", "--policy", proposal, "--on", hub.databaseURL, "--role", "authenticated", "--sub",
                "\(UUID())",
            ]
            let answers = try ["--log \(log)", "--server \(url)"].map { place in
                try Self.tidewire(whatIf + masked + place.split(separator: " ").map(String.init))
            }
            #expect(answers[0] == answers[1] && answers[0].output.contains("Of the changes @0"), "\(answers)")
            // The catalog's record reaches the log a moment later.
            try eventually("the catalog to be in the log") {
                try Self.tidewire(["seed", "--log", log]).output.contains("foreign keys, as the log has them")
            }
            let seeds = try ["--log \(log)", "--server \(url)"].map { place in
                try Self.tidewire(["seed"] + masked + place.split(separator: " ").map(String.init))
            }
            #expect(seeds[0].code == 0 && seeds[0].output.utf8.count == seeds[1].output.utf8.count)
            let script = TemporaryDirectory.make("seed") + "/seed.sql"
            #expect(try Self.tidewire(["seed", "--server", url, "--triggers", "--file", script] + masked).code == 0)
            #expect(try String(contentsOfFile: script, encoding: .utf8).contains("INSERT INTO"))
            let staging = try TestDatabase()
            for file in SQLFile.foundation + SQLFile.scenarios { try file.apply(staging.connection) }
            let place = "127.0.0.1:\(staging.cluster.port)/\(staging.name)"
            let replay = [
                "replay", "--target", staging.url, "--allow-target", place, "--speed", "max", "--server", url,
            ]
            let plan = try Self.tidewire(replay + masked + ["--from", "oldest"])
            #expect(plan.code == 0 && plan.output.contains("Nothing was written"), "\(plan)")
            let done = try Self.tidewire(replay + masked + ["--from", "oldest", "--go", "--tag", "incident-7"])
            #expect(done.code == 0, "\(done)")
            #expect(try staging.value("SELECT count(*) FROM reminders") == "20002")
            #expect(
                try staging.value("SELECT count(*) FROM reminders WHERE message LIKE '%\(secret)%'") == "0")
            for answer in answers + seeds + [plan, done] { #expect(!answer.output.contains(secret)) }
            let audit = try Self.tidewire(["log", "audit", "--log", log]).output
            #expect(
                audit.contains("replay") && audit.contains("incident-7") && audit.contains("operators' API"), "\(audit)"
            )
            #expect(try Self.tidewire(replay + ["--mask-key", proposal]).code == 2)
            let left = try FileManager.default.contentsOfDirectory(atPath: hub.dataDirectory)
            #expect(!left.contains { $0.hasPrefix("question-") }, "\(left)")
        }

        @Test func `a question that may not be asked is refused`() throws {
            let hub = try Self.started()
            let url = "http://127.0.0.1:\(hub.port)"
            let stranger = ["OPERATOR_TOKEN": hub.token(UUID())]
            #expect(try Self.tidewire(["tail", "--server", url], environment: stranger).code == 4)
            #expect(try Self.tidewire(["tail", "--server", url], environment: ["OPERATOR_TOKEN": ""]).code == 2)
            for words in [
                ["tail", "--follow"], ["tail", "--audit-file", "/tmp/x"], ["log", "verify", "--repair"],
                ["tail", "--log", "/tmp"], ["tail", "--mask-rules", "/etc/passwd"],
            ] {
                #expect(try Self.tidewire(words + ["--server", url]).code == 2, "\(words)")
            }
            #expect(try Self.tidewire(["tail", "--server", url, "--project", "none"]).code == 1)
            #expect(try Self.tidewire(["tail", "--server", "http://127.0.0.1:1"]).code == 4)
            #expect(try Self.tidewire(["tail", "--server", "nowhere"]).code == 2)
        }

        /// Checks that a login that sees all rows reads the rows that are older than the log. The hub's own login does
        /// not see them.
        @Test func `a table's rows come into the log, and are known before and after`() throws {
            let hub = try Self.started(
                before:
                    "INSERT INTO reminders (owner_id, message) SELECT gen_random_uuid(), 'early ' || n || repeat('x', 200) "
                    + "FROM generate_series(1, 3000) n")
            let (log, url) = (IngestService.Settings.logDirectory(hub.dataDirectory), "http://127.0.0.1:\(hub.port)")
            func messages(_ words: String...) throws -> (known: [String: Int], whole: Bool) {
                let words = ["asof", "reminders", "--log", log] + words
                let lines = try Self.tidewire(words + ["--json"]).output.split(separator: "\n")
                var known: [String: Int] = [:]
                for line in lines {
                    let row = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
                    let message = (row?["record"] as? [String: Any])?["message"] as? String ?? ""
                    known[message.replacing(/x{200}$/, with: ""), default: 0] += 1
                }
                return (known, try Self.tidewire(words, withErrors: true).output.contains("these are all"))
            }
            #expect(try messages().known.count == 2)
            let words = ["signal", "backfill", "reminders", "--server", url, "--database-url"]
            let reader = "reader_\(hub.port)"
            _ = try hub.ask("CREATE ROLE \(reader) LOGIN PASSWORD 'reads all'")
            _ = try hub.ask("GRANT SELECT ON reminders TO \(reader)")
            defer {
                _ = try? hub.ask("REVOKE ALL ON reminders FROM \(reader)")
                _ = try? hub.ask("DROP ROLE \(reader)")
            }
            let readerURL = hub.databaseURL.replacing(/\/\/[^@]*@/, with: "//\(reader):reads%20all@")
            let refused = try Self.tidewire(words + [readerURL], withErrors: true)
            #expect(refused.code == 1 && refused.output.contains("row-level security"), "\(refused)")
            #expect(try messages().known.count == 2)
            let absent = ["signal", "backfill", "nothing", "--server", url, "--database-url", readerURL]
            let unpublished = try Self.tidewire(absent, withErrors: true)
            #expect(unpublished.code == 1 && unpublished.output.contains("is not in the publication"), "\(unpublished)")
            _ = try hub.ask("ALTER ROLE \(reader) BYPASSRLS")
            let done = try Self.tidewire(words + [readerURL, "--because", "an incident", "--quiet"])
            #expect(done.code == 0 && done.output.hasPrefix("3002 rows of public.reminders, as of "), "\(done)")
            _ = try hub.ask("DELETE FROM reminders WHERE message LIKE 'early 7%'")
            _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(UUID())', 'late')")
            try eventually("the log to have it") {
                try Self.tidewire(["tail", "--from", "oldest", "--log", log]).output.contains("late")
            }
            let early = Set((1...3000).map { "early \($0)" })
            let now = try messages()
            #expect(
                now.whole
                    && Set(now.known.keys) == early.filter { !$0.hasPrefix("early 7") }.union(["two", "three", "late"]))
            // The log also knows the rows before its first change, and before the deletes.
            let before = try messages("--to", "@0")
            #expect(before.whole && Set(before.known.keys) == early, "\(before.known.count)")
            #expect(try messages("--to", "@2").known.count == 3002)
            // A row that no change touched has one version.
            let untouched = try #require(
                try hub.ask("SELECT id FROM reminders WHERE message LIKE 'early 5x%'").first?.first ?? nil)
            let row = try Self.tidewire(["row", "reminders", untouched, "--log", log, "--json"])
            #expect(row.code == 0 && row.output.split(separator: "\n").count == 1, "\(row)")
            #expect(row.output.contains(#""op":"READ""#) && row.output.contains("early 5x"), "\(row)")
            #expect(try Self.tidewire(["row", "reminders", untouched, "--log", log]).output.contains("READ"))
            let tail = try Self.tidewire(["tail", "--from", "oldest", "--log", log]).output
            #expect(tail.contains("backfilled") && tail.contains("an incident"), "\(tail.suffix(2000))")
            #expect(!tail.contains("early 1x"))
            // A copy of the log includes the rows read from the database, with masks if the options ask for that.
            // Forgetting a row removes it from these, too.
            let bundle = TemporaryDirectory.make("bundle") + "/a.bundle"
            #expect(try Self.tidewire(["bundle", bundle, "--log", log, "--mask", "message"]).code == 0)
            let opened = try Self.tidewire(["asof", "reminders", "--to", "@0", "--log", bundle, "--json"]).output
            #expect(opened.split(separator: "\n").count == 3000 && !opened.contains("early"))
            let id = try #require(
                try hub.ask("SELECT id FROM reminders WHERE message LIKE 'early 1x%'").first?.first ?? nil)
            let forgotten = try Self.tidewire(["log", "forget", "reminders", id, "--server", url, "--go"])
            #expect(forgotten.code == 0 && forgotten.output.contains("1 change of public.reminders"), "\(forgotten)")
            #expect(try messages().known["early 1"] == nil)
        }

        /// Kills a hub that forgets a row, at a random moment. Afterwards the log has all of the row's values or none,
        /// and none if the command reported success.
        @Test(arguments: newSeed()) func `a hub that is killed while it forgets has forgotten or has not`(
            _ seed: Seed
        ) throws {
            var random = SeededRandom(seed: seed)
            let hub = try Self.started(["TIDEWIRE_SEGMENT_SIZE": "1MB"])
            let log = IngestService.Settings.logDirectory(hub.dataDirectory)
            let insert = "INSERT INTO reminders (owner_id, message) SELECT gen_random_uuid(), 'secret'"
            _ = try hub.ask("\(insert) FROM generate_series(1, 20)")
            for version in 1...20 {
                let update = "UPDATE reminders SET message = 'secret \(version) ' || repeat(md5(id::text), 250)"
                _ = try hub.ask("\(update) WHERE message LIKE 'secret%'")
            }
            let rows = try hub.ask("SELECT id FROM reminders WHERE message LIKE 'secret%'")
            let ids = rows.compactMap { $0.first ?? nil }
            func versions(_ id: String) throws -> (told: Int, forgotten: Int) {
                let lines = try Self.tidewire(["row", "reminders", id, "--log", log, "--json"]).output.split(
                    separator: "\n")
                let forgotten = lines.count { $0.contains(#""forgotten":"#) }
                return (lines.count - forgotten, forgotten)
            }
            try eventually("the log to have all") { try versions(ids[19]).told == 21 }
            let url = "http://127.0.0.1:\(hub.port)"
            for (round, id) in ids.prefix(8).enumerated() {
                let file = TemporaryDirectory.make("process") + "/output"
                let forgetting = try ChildProcess(
                    [ServedHub.program, "log", "forget", "reminders", id, "--server", url, "--go"], output: file,
                    environment: ["OPERATOR_TOKEN": HubForApps.operatorToken])
                BackgroundThread.rest(nanoseconds: UInt64.random(in: 0...600_000_000, using: &random))
                hub.kill()
                let isSaid = forgetting.wait(milliseconds: 180_000) == .exited(0)
                try hub.start()
                try eventually("the hub to follow again") {
                    let said = try? String(contentsOfFile: hub.dataDirectory + "/serve.log", encoding: .utf8)
                    let starts = said?.split(separator: " starting ").dropFirst() ?? []
                    return starts.count == round + 2 && starts.last?.contains(" streaming ") == true
                }
                let left = try versions(id)
                #expect(left == (0, 21) || (left == (21, 0) && !isSaid), "\(seed): \(left), said: \(isSaid)")
                let verified = try Self.tidewire(["log", "verify", "--log", log], withErrors: true)
                #expect(verified.code == 0 && !verified.output.contains("interrupted"), "\(seed): \(verified)")
            }
            for id in ids.suffix(12) { #expect(try versions(id).told == 21, "\(seed)") }
        }

        private struct Reminder: LiveRow {
            static let table = "reminders"
            let id: UUID
            let message: String

            struct Columns: Sendable { let message = LiveColumn<String>("message") }
            static let columns = Columns()
        }

        /// Checks that a bundle leaves out filter values on a masked column. Without them, nothing can be predicted
        /// about clients with such filters.
        @Test func `filters that a bundle masks are left out of a proposal, and counted`() throws {
            let hub = try Self.started()
            let log = IngestService.Settings.logDirectory(hub.dataDirectory)
            let person = UUID()
            try onThisThread {
                let live = hub.client(person).live(Reminder.self, where: \.message == "hush", window: .immediate)
                var batches = live.makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(person)', 'hush')")
                while let batch = await batches.next(), batch.changes.isEmpty {}
            }
            _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(person)', 'aloud')")
            try eventually("the log to have it") {
                try Self.tidewire(["tail", "--from", "oldest", "--unmask", "message", "--log", log]).output
                    .contains("aloud")
            }
            func proposed(_ name: String, _ words: [String]) throws -> (answer: Answer, total: [String: Any]) {
                let bundle = TemporaryDirectory.make("bundle") + "/\(name).bundle"
                #expect(try Self.tidewire(["bundle", bundle, "--log", log] + words).code == 0)
                let asked = ["whatif", "--binding", "reminders", "--on", hub.databaseURL, "--log", bundle]
                let lines = try Self.tidewire(asked + ["--json"]).output.split(separator: "\n")
                let total = try JSONSerialization.jsonObject(with: Data((lines.last ?? "{}").utf8))
                return (try Self.tidewire(asked), try #require(total as? [String: Any]))
            }
            let open = try proposed("open", ["--unmask", "message"])
            #expect(open.total["masked_filters"] as? Int == 0 && open.total["gains"] as? Int == 1, "\(open)")
            let masked = try proposed("masked", ["--mask", "message"])
            #expect(masked.total["masked_filters"] as? Int == 1, "\(masked)")
            #expect(masked.answer.output.contains("filters of subscriptions (1), so they are left out"), "\(masked)")
            #expect(!masked.answer.output.contains("hush") && masked.total["gains"] as? Int == 2, "\(masked)")
        }

        /// Checks that rows written before an early end do no harm: the next backfill works as if they did not exist.
        @Test func `a backfill that ends early says so, and can be made again`() throws {
            let hub = try Self.started(
                before: """
                    CREATE TABLE wide (id int PRIMARY KEY, note text);
                    INSERT INTO wide SELECT n, repeat('x', 3000) FROM generate_series(1, 20000) n;
                    ALTER PUBLICATION supabase_realtime ADD TABLE wide
                    """)
            let log = IngestService.Settings.logDirectory(hub.dataDirectory)
            let words = [
                "signal", "backfill", "wide", "--server", "http://127.0.0.1:\(hub.port)", "--database-url",
                hub.databaseURL,
            ]
            /// Returns the number of bytes written to the log. The files are larger.
            func bytes() throws -> Int {
                let line = try Self.tidewire(["log", "info", "--json", "--log", log]).output.split(separator: "\n")[0]
                let info = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
                return try #require(info?["bytes"] as? Int)
            }
            /// Starts a backfill, and calls `hinder` during it.
            func begun(_ hinder: () throws -> Void) throws -> (child: ChildProcess, said: () -> String) {
                let file = TemporaryDirectory.make("process") + "/output"
                let before = try bytes()
                let child = try ChildProcess(
                    [ServedHub.program] + words, output: file,
                    environment: ["OPERATOR_TOKEN": HubForApps.operatorToken])
                try eventually("a part to be in the log") { try bytes() > before + 200_000 }
                try hinder()
                return (child, { (try? String(contentsOfFile: file, encoding: .utf8)) ?? "" })
            }
            func isIncomplete(_ said: String) -> Bool {
                said.contains(/The log has [1-9][0-9]* of the table's rows.*Run the command again/)
            }
            // The hub is stopped, so it does not read the rows that the database sends.
            let interrupted = try begun { hub.signal(SIGSTOP) }
            try eventually("the command to wait for the hub") {
                try hub.ask(
                    "SELECT 1 FROM pg_stat_activity WHERE query LIKE '%FROM ONLY public.wide%' AND wait_event = 'ClientWrite'"
                ).count == 1
            }
            interrupted.child.signal(SIGINT)
            #expect(interrupted.child.wait(milliseconds: 180_000) == .exited(1))
            let said = interrupted.said()
            #expect(said.hasPrefix("tidewire: interrupted\n") && isIncomplete(said), "\(said)")
            // The hub is killed. Otherwise, the rows that the command had sent would enter the log as part of the next
            // backfill.
            hub.kill()
            try hub.start()
            try Self.awaitAnswers(hub)
            let killed = try begun { hub.kill() }
            #expect(killed.child.wait(milliseconds: 180_000) == .exited(4))
            #expect(isIncomplete(killed.said()), "\(killed.said())")
            let away = try Self.tidewire(words, withErrors: true)
            #expect(away.code == 4 && !away.output.contains("The log has"), "\(away)")
            try hub.start()
            try Self.awaitAnswers(hub)
            let again = try Self.tidewire(words, withErrors: true)
            #expect(again.code == 0 && again.output.hasPrefix("20000 rows of public.wide"), "\(again)")
            let rows = try Self.tidewire(["asof", "wide", "--log", log], withErrors: true)
            #expect(rows.output.contains("these are all"), "\(rows.output.suffix(500))")
        }

        /// Checks that a backfill reads only published columns and rows, and refuses another database.
        @Test(.postgres(15)) func `of a table what is published of it comes into the log`() throws {
            let hub = try Self.started(
                before: """
                    CREATE TABLE items (id int PRIMARY KEY, note text, secret text, twice int GENERATED ALWAYS AS (id * 2) STORED);
                    INSERT INTO items SELECT n, 'note ' || n, 'secret ' || n FROM generate_series(1, 9) n;
                    ALTER PUBLICATION supabase_realtime ADD TABLE items (id, note) WHERE (id > 5);
                    CREATE TABLE days (day int PRIMARY KEY, note text) PARTITION BY RANGE (day);
                    CREATE TABLE days_1 PARTITION OF days FOR VALUES FROM (0) TO (10);
                    CREATE TABLE "Odd ""d" PARTITION OF days FOR VALUES FROM (10) TO (20);
                    INSERT INTO days SELECT n, 'day ' || n FROM generate_series(1, 19) n;
                    ALTER PUBLICATION supabase_realtime ADD TABLE days;
                    CREATE TABLE keyless (note text); ALTER PUBLICATION supabase_realtime ADD TABLE keyless;
                    """)
            let (log, url) = (IngestService.Settings.logDirectory(hub.dataDirectory), "http://127.0.0.1:\(hub.port)")
            func backfill(_ table: String, at database: String? = nil) throws -> Answer {
                try Self.tidewire(
                    ["signal", "backfill", table, "--server", url, "--database-url", database ?? hub.databaseURL],
                    withErrors: true)
            }
            func rows(_ table: String) throws -> [String] {
                let answer = try Self.tidewire(["asof", table, "--log", log, "--json"])
                return try answer.output.split(separator: "\n").map { line in
                    let row = try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any]
                    let record = row?["record"] as? [String: Any] ?? [:]
                    return record.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: ", ")
                }
            }
            let items = try backfill("items")
            #expect(items.code == 0 && items.output.hasPrefix("4 rows of public.items"), "\(items)")
            #expect(try rows("items") == (6...9).map { "id \($0), note note \($0)" })
            // By default, a publication publishes the partitions and not their root.
            let root = try backfill("days")
            #expect(root.code == 1 && root.output.contains("name each partition"), "\(root)")
            let odd = #"public."Odd ""d""#
            #expect(try backfill(odd).code == 0)
            #expect(try rows(odd) == (10...19).map { "day \($0), note day \($0)" })
            let keyless = try backfill("keyless")
            #expect(keyless.code == 1 && keyless.output.contains("no published primary key"), "\(keyless)")
            // Another database has a table of the same name, with other rows.
            let other = try TestDatabase()
            try other.run(
                """
                CREATE TABLE items (id int PRIMARY KEY, note text); INSERT INTO items VALUES (7, 'elsewhere');
                CREATE PUBLICATION supabase_realtime FOR TABLE items
                """)
            let strange = try backfill("items", at: other.url)
            #expect(strange.code == 4 && strange.output.contains("another database than the log"), "\(strange)")
            #expect(try rows("items").count == 4)
            // The command waits for a locked table only for a limited time. A login without the right to read the table
            // gets that error.
            let nobody = try backfill("items", at: hub.policyURL)
            #expect(nobody.code == 1 && nobody.output.contains("permission denied"), "\(nobody)")
        }

        @Test func `what an operator signals stands between the changes`() throws {
            let hub = try Self.started()
            let (log, url) = (IngestService.Settings.logDirectory(hub.dataDirectory), "http://127.0.0.1:\(hub.port)")
            func signal(_ words: String...) throws -> Answer {
                try Self.tidewire(["signal"] + words + ["--server", url])
            }
            func tail(_ words: String..., log: String = log) throws -> [[String: Any]] {
                let answer = try Self.tidewire(["tail", "--from", "oldest", "--json", "--log", log] + words)
                return try answer.output.split(separator: "\n").map {
                    try #require(try JSONSerialization.jsonObject(with: Data($0.utf8)) as? [String: Any])
                }
            }
            func insert(_ message: String) throws {
                _ = try hub.ask("INSERT INTO reminders (owner_id, message) VALUES ('\(UUID())', '\(message)')")
            }
            let marked = try signal("mark", "api 4.12 deployed")
            #expect(marked.code == 0 && marked.output == "marked before @3\n", "\(marked)")
            try insert("behind it")
            try eventually("the log to have it") { try tail().contains { "\($0)".contains("behind it") } }
            let paused = try signal("pause", "--for", "1h", "--because", "a migration")
            #expect(paused.code == 0 && paused.output.hasPrefix("paused until 20"), "\(paused)")
            try eventually("the stream to have ended") {
                try hub.ask("SELECT 1 FROM pg_replication_slots WHERE slot_name = '\(hub.slot)' AND NOT active").count
                    == 1
            }
            try insert("meanwhile")
            // These marks are written while the hub's reading is paused.
            #expect(try signal("mark", "half way").code == 0)
            #expect(try signal("rotate").code == 0)
            let resumed = try signal("resume")
            #expect(resumed.code == 0 && resumed.output.hasPrefix("the hub continues to read"), "\(resumed)")
            try eventually("the log to have it") { try tail().contains { "\($0)".contains("meanwhile") } }

            let lines = try tail().map { line in
                line["op"] as? String == "MARK"
                    ? "\(line["event"] ?? "") \((line["text"] as? String ?? "").replacing(/until \S+Z/, with: "until then"))"
                    : "\((line["record"] as? [String: Any])?["message"] ?? "")"
            }
            #expect(
                lines.suffix(7) == [
                    "marked api 4.12 deployed", "behind it", "paused until then: a migration", "marked half way",
                    "rotated ", "resumed ", "meanwhile",
                ], "\(lines)")
            #expect(try tail("--table", "reminders").count == lines.count - 5)
            let segments = try Self.tidewire(["log", "info", "--json", "--log", log])
            #expect(segments.output.split(separator: "\n").count >= 2, "\(segments)")
            // An export includes the marks, masked or not.
            let (file, copy) = (
                TemporaryDirectory.make("marks") + "/log.ndjson", TemporaryDirectory.make("marks") + "/log"
            )
            try Self.tidewire(["log", "export", "--log", log]).output.write(
                toFile: file, atomically: true, encoding: .utf8)
            let imported = try Self.tidewire(["log", "import", file, "--log", copy])
            #expect(imported.code == 0, "\(imported)")
            #expect(try tail(log: copy).count(where: { $0["op"] as? String == "MARK" }) == 5)

            for words in [
                ["mark", ""], ["mark", String(repeating: "x", count: 1025)], ["pause", "--for", "25h"], ["turn"], [],
            ] { #expect(try Self.tidewire(["signal"] + words + ["--server", url]).code == 2, "\(words)") }
            #expect(try Self.tidewire(["signal", "mark", "x"]).code == 2)
            #expect(try signal("resume").code == 4)
            let stranger = ["OPERATOR_TOKEN": hub.token(UUID())]
            #expect(try Self.tidewire(["signal", "mark", "x", "--server", url], environment: stranger).code == 4)
        }

        @Test func `who listens is listed`() throws {
            let hub = try Self.started()
            let url = "http://127.0.0.1:\(hub.port)"
            #expect(try Self.tidewire(["subs", "--server", url]).code == 1)
            let person = UUID()
            let listed = try onThisThread { () -> Answer? in
                var batches = hub.client(person).live(Listed.self, window: .immediate).makeAsyncIterator()
                while let batch = await batches.next(), !batch.isCaughtUp {}
                return try Self.tidewire(["subs", "--server", url, "--json"])
            }
            let answer = try #require(listed)
            #expect(answer.code == 0)
            let row = try #require(
                try JSONSerialization.jsonObject(with: Data(answer.output.utf8)) as? [String: Any], "\(answer)")
            #expect(
                row["user"] as? String == person.uuidString.lowercased() && row["role"] as? String == "authenticated")
            #expect(row["position"] is Int && row["slow"] as? Bool == false, "\(row)")
            #expect(((row["bindings"] as? [[String: Any]])?.first?["table"] as? String) == "reminders", "\(row)")
            #expect(try Self.tidewire(["subs", "--server", url, "--lagging", "1h"]).code == 1)
        }
    }
}

private struct Listed: LiveRow {
    static let table = "reminders"
    let id: UUID
    struct Columns: Sendable {}
    static let columns = Columns()
}
