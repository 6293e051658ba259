import Diagnostics
import Embedded
import Foundation
import Policy
import Postgres
import System
import TestSupport
import Testing

@testable import Catalog
@testable import Judging
@testable import Server

extension GatewayHistories {
    /// Tests of random histories of rows, memberships, policies and definitions. After each transaction, the test asks
    /// PostgreSQL which row images each client may see. The client must have received exactly these.
    ///
    /// `SEED=n` runs one seed, `TIDEWIRE_HISTORY_STEPS=n` makes the histories longer, `TIDEWIRE_HISTORY_SEEDS=n` makes
    /// more.
    @Suite(.serialized, .postgres(15), .postgres(before: 18)) struct PolicyHistoryTests {
        private static func number(_ name: String, or usual: Int) -> Int {
            ProcessInfo.processInfo.environment[name].flatMap { Int($0) } ?? usual
        }

        // Seeds alternate. For partitioned tables that are published as themselves, the stream never reports
        // definitions. For the other kinds, it does so for every second seed. Twice as many seeds run each kind both
        // ways.
        @Test(arguments: seeds(number("TIDEWIRE_HISTORY_SEEDS", or: HistoryGround.allCases.count)))
        func `each hears of what PostgreSQL would show it`(seed: Seed) throws {
            let run = try HistoryRun(seed: seed)
            for _ in 0..<PolicyHistoryTests.number("TIDEWIRE_HISTORY_STEPS", or: 30) {
                try run.step()
                if run.differences > 2 { break }
            }
            print("seed \(seed): \(run.summary)")
            #expect(run.compared > run.shown)
            // The policies of a seed that somebody chose may show nothing.
            #expect(run.shown > 0 || ProcessInfo.processInfo.environment["SEED"] != nil)
            #expect(run.refused.isEmpty, "\(run.refused)")
            #expect(run.contradictions == 0)
            #expect(try run.tellsOfAllLosses())
        }
    }
}

/// One history, with its clients and the session that computes the expected results.
private final class HistoryRun {
    private struct Claims {
        var role: String
        var json: String
    }

    /// Change of a row, as the table `trail` records it.
    private struct TrailEntry: CustomStringConvertible {
        var operation: String
        var was: String?
        var became: String?
        var oldID: Int?
        var id: Int?
        /// Columns of the new row that are not generated.
        var shown: [String: String]

        var description: String {
            "\(operation) of \(short(was)) → \(short(became))"
        }

        private func short(_ image: String?) -> String {
            image.map { $0.count < 300 ? $0 : "\($0.prefix(60))…\($0.suffix(60))" } ?? "-"
        }
    }

    private let seed: Seed
    private let stage: GatewayStage
    var contradictions: UInt64 { stage.metrics.shadowContradictions.value }
    private var history: PolicyHistory
    private var claims: [Claims] = []
    private var callers: [Caller] = []
    private var fence = 0
    private var steps: [String] = []
    private var stepNumber = 0
    private(set) var differences = 0
    private(set) var compared = 0
    private(set) var shown = 0
    private var doubtful = 0
    /// Time until which a policy may be suspended, because PostgreSQL's answer took too long on a busy machine.
    private var restsUntil = ContinuousClock.now
    private var unanswered = 0
    /// Callers that missed a row image because PostgreSQL did not answer in time, and that received no notice of a loss
    /// since.
    private var untold: Set<Int> = []
    private(set) var refused: [String] = []
    private var classes: [CompiledPolicy.Classification: Int] = [:]

    init(seed: Seed) throws {
        self.seed = seed
        let isTold = PolicyHistory.isTold(seed)
        let extras = isTold ? SQLFile.extras.map(\.text).joined(separator: "\n") : ""
        history = PolicyHistory(seed: seed, isToldOfDefinitions: isTold)
        let first = history.policySet()
        stage = try GatewayStage(
            history.schema + first + extras, publication: history.ground.publication, followed: "members", [],
            on: nil, history.encoding)
        let (one, two) = (PolicyHistory.user(1), PolicyHistory.user(2))
        let fields = [
            #""sub":"\#(one)""#, #""sub":"\#(two)","sees":"a","level":"2""#,
            #""sub":"{\#(PolicyHistory.user(3).uppercased())}","sees":"x","app":{"team":3}"#,
            #""sub":"not a uuid","sees":"b""#, #""level":1.50"#,
            #""sub":null,"sees":null,"level":3,"app":{"team":"2"}"#,
            #""sub":"""#, #""sub":42,"level":"x","sees":["a"],"app":7"#,
            #""sub":"\#(one)","sub":"\#(two)","sees":"c","app":{"team":1,"team":2}"#,
            #""sub":"\#(two)","sees":"\#(history.spelled("Б"))","on":"03/02/2026""#,
        ]
        claims =
            fields.map { made(stage.reader, $0) } + [made(stage.outsider, fields[1]), made(stage.outsider, fields[4])]
        for claims in claims {
            let caller = try stage.caller()
            try caller.subscribe(
                "realtime:a", (history.ground.judged + ["fences"]).map { binding($0) },
                token: stage.token(claims: claims.json))
            callers.append(caller)
        }
    }

    private func made(_ role: String, _ fields: String) -> Claims {
        let expiry = Int(Date().timeIntervalSince1970) + 3600
        return Claims(role: role, json: #"{"role":"\#(role)","exp":\#(expiry),\#(fields)}"#)
    }

    var summary: String {
        let all = max(1, classes.values.reduce(0, +))
        let shares = CompiledPolicy.Classification.allCases.map { "\($0) \((classes[$0] ?? 0) * 100 / all) %" }
        return
            "\(history.encoding) \(history.oracleSettings) \(history.ground)\(history.keepsThePast ? "" : " without the past"), \(stepNumber) steps, \(refused.count) of them refused, \(compared) images compared, \(shown) shown, \(doubtful) that fail for PostgreSQL, \(unanswered) that a busy PostgreSQL did not judge in time; policies: "
            + shares.joined(separator: ", ")
    }

    // MARK: Steps

    func step() throws {
        stepNumber += 1
        let step = history.next()
        // The hub disconnects a client that sends nothing for long.
        if stepNumber % 10 == 0 { for caller in callers { try caller.fence() } }
        steps.append(step.sql)
        try stage.run("DELETE FROM trail")
        do { try stage.run(step.sql) } catch {
            refused.append("\(error)")
            _ = try? stage.run("ROLLBACK")
        }
        if step.isQuiet { try stage.awaitCatalog() }
        fence += 1
        try stage.run("INSERT INTO fences VALUES (\(fence))")
        let began = ContinuousClock.now
        let heard = try callers.map { try self.heard($0) }
        if began.duration(to: .now) > Limits.policyTimeout { restsUntil = .now + Limits.policyPenalty }
        for (kind, count) in history.ground.judged.flatMap({ Array(stage.hub.policyClasses(of: $0)) }) {
            classes[kind, default: 0] += count
        }
        let trail = try self.trail()
        guard !trail.isEmpty || heard.contains(where: { !$0.isEmpty }) else { return }
        let verdicts = try self.verdicts(trail)
        for number in callers.indices { try compare(heard[number], trail, verdicts, number) }
    }

    private func heard(_ caller: Caller) throws -> [Message] {
        var heard: [Message] = []
        while true {
            let change = try caller.change()
            guard change.data["table"] as? String == "fences" else {
                heard.append(change)
                continue
            }
            if change.id == fence { return heard }
        }
    }

    private func trail() throws -> [TrailEntry] {
        try stage.run("SELECT operation, was, became, old_id, id, shown FROM trail ORDER BY place").values.map { row in
            TrailEntry(
                operation: row[0] ?? "", was: row[1], became: row[2], oldID: row[3].flatMap { Int($0) },
                id: row[4].flatMap { Int($0) }, shown: try columns(row[5] ?? "{}"))
        }
    }

    private func columns(_ json: String) throws -> [String: String] {
        let object = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? [String: Any] ?? [:]
        return object.mapValues { "\($0)" }
    }

    /// Returns one letter per client for each image: `y` if it may see the image, `n` if not, `e` if PostgreSQL raises
    /// an error.
    private func verdicts(_ trail: [TrailEntry]) throws -> [String: [Character]] {
        let images = Array(Set(trail.flatMap { [$0.was, $0.became].compactMap(\.self) }))
        guard !images.isEmpty else { return [:] }
        try stage.database.run("BEGIN")
        defer { _ = try? stage.database.run("ROLLBACK") }
        if !history.oraclePolicies.isEmpty { try stage.run(history.oraclePolicies) }
        try stage.run("SELECT;" + history.oracleSettings)
        let answer = try stage.database.connection.query(
            "SELECT oracle($1::text[], $2::text[], $3::text[], \(history.ground == .leaves))",
            [
                PostgresArray.literal(images), PostgresArray.literal(claims.map(\.role)),
                PostgresArray.literal(claims.map(\.json)),
            ])
        let all = Array(answer.first?.first.flatMap(\.self) ?? "")
        try #require(all.count == images.count * claims.count)
        var verdicts: [String: [Character]] = [:]
        for (place, image) in images.enumerated() {
            verdicts[image] = Array(all[place * claims.count..<(place + 1) * claims.count])
        }
        return verdicts
    }

    // MARK: Comparing

    private static func tellsOfLoss(_ said: String) -> Bool { said.contains("could not be evaluated") }

    /// True if each caller receives a notice about the images for which PostgreSQL did not answer in time, immediately
    /// or after a pause.
    func tellsOfAllLosses() throws -> Bool {
        for number in untold.sorted() {
            let isTold = try eventually {
                try callers[number].fence()
                return callers[number].takeUnheard().compactMap(\.said).contains(where: Self.tellsOfLoss)
            }
            guard isTold else { return false }
        }
        return true
    }

    private func compare(
        _ heard: [Message], _ trail: [TrailEntry], _ verdicts: [String: [Character]], _ number: Int
    ) throws {
        var rest = heard[...]
        var complaints: [String] = []
        let said = callers[number].takeUnheard().compactMap(\.said)
        let isTold = said.contains(where: Self.tellsOfLoss)
        if isTold { untold.remove(number) }
        for entry in trail {
            let was = entry.was.flatMap { verdicts[$0]?[number] } ?? "n"
            let judged = entry.became == nil ? was : entry.became.flatMap { verdicts[$0]?[number] } ?? "n"
            compared += 1
            let event = rest.first.flatMap { isOf(entry, $0) ? $0 : nil }
            if judged == "e" { doubtful += 1 }
            if event == nil {
                let isHidden =
                    !history.keepsThePast && !history.ground.isRecalled
                    && (entry.operation == "DELETE" || entry.operation == "UPDATE" && isTold)
                if judged == "y", !isHidden {
                    guard .now < restsUntil else {
                        complaints.append("not told of \(entry)")
                        continue
                    }
                    unanswered += 1
                    if !isTold { untold.insert(number) }
                }
                continue
            }
            rest.removeFirst()
            shown += 1
            if judged == "n" || judged == "e" && history.isPlain { complaints.append("told of \(entry)") }
            guard entry.operation == "UPDATE", let event else { continue }
            let isWhole = event.old.count > 2
            // A value that the new row contains, too, reveals nothing about the old row.
            let isNews = isWhole || event.old.contains { "\(event.record[$0] ?? "")" != "\($1)" }
            if isNews, was == "n" || was == "e" && history.isPlain {
                complaints.append("told the past \(event.old) of \(entry)")
            }
            if !isWhole, was == "y", history.keepsThePast { complaints.append("not told the past of \(entry)") }
        }
        if !rest.isEmpty { complaints.append("told what never was: \(rest)") }
        guard !complaints.isEmpty else { return }
        differences += 1
        Issue.record(
            """
            seed \(seed), step \(stepNumber), \(claims[number].role) \(claims[number].json):
            \(complaints.joined(separator: "\n"))
            said: \(said)
            steps: \(steps.suffix(6).joined(separator: "\n"))
            policies: \(history.policies.joined(separator: "\n"))
            functions: \(try stage.database.value("SELECT string_agg(pg_get_functiondef(oid), chr(10)) FROM pg_proc WHERE proname IN ('mine', 'leads', 'asks', 'teams')") ?? "")
            members: \(try stage.database.value("SELECT array_agg(m)::text FROM members m") ?? "")
            rls: \(try stage.database.value("SELECT array_agg((relname, relrowsecurity, relacl))::text FROM pg_class WHERE relname IN ('notes', 'members')") ?? "")
            """)
    }

    /// True for large values that an update leaves unchanged, and for columns that are not published.
    private func mayLack(_ column: String) -> Bool {
        switch column {
        case "body": !history.keepsThePast && !history.ground.isRecalled
        case "extra": history.ground == .columnList
        default: false
        }
    }

    /// True if the message can belong to this change. If the change's result is uncertain, its message may be missing.
    private func isOf(_ entry: TrailEntry, _ message: Message) -> Bool {
        message.type == entry.operation
            && (entry.operation == "DELETE"
                ? message.old["id"] as? Int == entry.oldID
                : entry.shown.allSatisfy { name, value in
                    guard let told = message.record[name] else { return mayLack(name) }
                    return "\(told)" == value
                })
    }
}
