import Asking
import Catalog
import Diagnostics
import Postgres

/// Questions about one policy, combined without duplicates into a table of rows by claims.
///
/// Rows are duplicates if the columns that the policy reads are equal. For all rows of one chat room, the hub thus asks
/// only once who is a member.
struct PolicyTable {
    private(set) var claims: [String] = []
    private(set) var rows: [[String?]] = []
    private var claimsPlaces: [String: Int] = [:]
    private var subjectPlaces: [ObjectIdentifier: Int] = [:]
    /// Row indices by the texts of the columns that the policy reads.
    private var rowPlaces: [[String?]: Int] = [:]
    private let needed: [Int]
    private var members: [Member] = []
    private(set) var xids: Set<UInt32> = []
    /// Answer for each row and each set of claims: true if the claims may read the row, nil while unknown.
    private var answers: [Bool?] = []
    private var failed: Set<Int> = []

    private struct Member {
        var job: JudgingJob
        var question: PolicyQuestion
        var reply: Reply<PolicyAnswers>
        var rows: [Int]
        var claims: [Int]
    }

    /// Index that stands for a text with a zero byte, which cannot be sent to PostgreSQL.
    private static let noPlace = -1

    private init(_ policy: JudgedPolicy) {
        needed = policy.row.columns.indices.filter { policy.row.columns[$0].isNeeded }
    }

    /// Combines the jobs into few tables. A job joins the table before it if asking for the additional row-claims pairs
    /// costs less than setting its claims twice.
    static func tables(of jobs: [JudgingJob]) -> [PolicyTable] {
        var tables: [PolicyTable] = []
        assert(Set(jobs.map(\.key)).count <= 1, "rows are laid over each other under one policy")
        for job in jobs {
            guard case .rows(let question, let reply) = job.work else { continue }
            if let last = tables.indices.last, tables[last].isWorth(question) {
                tables[last].add(job, question, reply)
            } else {
                var table = PolicyTable(question.policy)
                table.add(job, question, reply)
                tables.append(table)
            }
        }
        for index in tables.indices {
            tables[index].answers = Array(
                repeating: nil, count: tables[index].rows.count * tables[index].claims.count)
        }
        return tables
    }

    private func isWorth(_ question: PolicyQuestion) -> Bool {
        let newClaims = question.subjects.count { subjectPlaces[ObjectIdentifier($0)] == nil }
        let (claims, rows) = (self.claims.count + newClaims, self.rows.count + question.rows.count)
        guard claims * rows <= Limits.policyBatchPairs else { return false }
        let together = JudgingPace.weight(claims: claims, rows: rows)
        let apart =
            JudgingPace.weight(claims: self.claims.count, rows: self.rows.count)
            + JudgingPace.weight(claims: question.subjects.count, rows: question.rows.count)
        return together <= apart
    }

    private mutating func add(
        _ job: JudgingJob, _ question: PolicyQuestion, _ reply: Reply<PolicyAnswers>
    ) {
        if let xid = job.seeing { xids.insert(xid) }
        precondition(answers.isEmpty, "nothing is added to what is being answered")
        assert(needed.allSatisfy(question.policy.row.columns.indices.contains), "all questions are of one policy")
        let rows = question.rows.map { place(ofRow: $0) }
        let claims = places(of: question.subjects)
        assert(rows.count == question.rows.count && claims.count == question.subjects.count, "each has a place")
        members.append(Member(job: job, question: question, reply: reply, rows: rows, claims: claims))
    }

    private mutating func places(of subjects: [PolicySubject]) -> [Int] {
        if let last = members.last, last.question.subjects.elementsEqual(subjects, by: ===) { return last.claims }
        return subjects.map { place(of: $0) }
    }

    private mutating func place(of subject: PolicySubject) -> Int {
        if let known = subjectPlaces[ObjectIdentifier(subject)] { return known }
        let place = claimsPlaces[subject.claims] ?? newPlace(subject.claims)
        subjectPlaces[ObjectIdentifier(subject)] = place
        return place
    }

    private mutating func newPlace(_ claims: String) -> Int {
        guard !claims.utf8.contains(0) else { return PolicyTable.noPlace }
        self.claims.append(claims)
        claimsPlaces[claims] = self.claims.count - 1
        return self.claims.count - 1
    }

    private mutating func place(ofRow row: [String?]) -> Int {
        let lookedAt = needed.map { row[$0] }
        if let known = rowPlaces[lookedAt] { return known }
        guard !row.contains(where: { $0?.utf8.contains(0) ?? false }) else { return PolicyTable.noPlace }
        rows.append(row)
        rowPlaces[lookedAt] = rows.count - 1
        return rows.count - 1
    }

    // MARK: Answers

    subscript(row: Int, claims: Int) -> Bool? {
        get { answers[place(row, claims)] }
        set { answers[place(row, claims)] = newValue }
    }

    /// Records that the policy always fails on this row for these claims.
    mutating func fail(_ row: Int, _ claims: Int) {
        self[row, claims] = nil
        failed.insert(place(row, claims))
    }

    /// Returns the index of the pair's answer. A crash is preferred to reading another pair's answer.
    private func place(_ row: Int, _ claims: Int) -> Int {
        precondition(rows.indices.contains(row) && self.claims.indices.contains(claims), "a pair is of the table")
        return row * self.claims.count + claims
    }

    /// Passes each question its answers, marked with the definitions by which PostgreSQL gave them.
    func finish(by definitions: DefinitionsVersion.Reading?) {
        for member in members {
            var answers = PolicyAnswers(member.question, by: definitions)
            for (row, rowPlace) in member.rows.enumerated() where rowPlace != PolicyTable.noPlace {
                for (subject, place) in member.claims.enumerated() where place != PolicyTable.noPlace {
                    answers[row, subject] = self[rowPlace, place]
                    if failed.contains(self.place(rowPlace, place)) { answers.fail(row, subject) }
                }
            }
            member.job.metrics.policyPairs.add(member.question.pairCount)
            member.job.metrics.policyFailures.add(answers.unknownCount)
            member.reply.give(answers)
        }
    }
}
