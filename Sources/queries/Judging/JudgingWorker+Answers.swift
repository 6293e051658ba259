import Asking
import Catalog
import Diagnostics
import Policy
import Postgres

/// Questions in which PostgreSQL runs a claims script, and the evaluation of its answers.
extension JudgingWorker {
    // MARK: Rows under a policy

    func judged(_ batch: JudgingBatch, _ connection: JudgingConnection) throws(PostgresError) -> () -> Void {
        var tables = PolicyTable.tables(of: batch.jobs)
        guard case .rows(let question, _) = batch.jobs.first?.work else { return {} }
        for index in tables.indices {
            guard try judge(&tables[index], batch.key, question.policy, connection) else { break }
        }
        let definitions = link.definitions
        return { for table in tables { table.finish(by: definitions) } }
    }

    private func judge(
        _ table: inout PolicyTable, _ key: JudgingKey, _ policy: JudgedPolicy, _ connection: JudgingConnection
    ) throws(PostgresError) -> Bool {
        var first = 0
        while first < table.rows.count {
            let rows = table.rows[first...].fitting(
                Limits.policyStatementRows, within: Limits.policyStatementBytes, PolicyQuestion.bytes)
            let inputs = policy.row.columns.indices.map { column in rows.map { $0[column] } }
            var answers = table
            let isDone = try ask(key, policy.loop, table.claims, inputs, table.xids, connection) { from, count, found in
                answers.take(found.rows, rows: rows.indices, claims: from..<from + count)
            }
            table = answers
            guard isDone else { return false }
            first = rows.endIndex
        }
        return true
    }

    // MARK: Terms over claims

    func evaluated(
        _ terms: [AskedTerm], _ role: String, _ batch: JudgingBatch, _ connection: JudgingConnection
    ) throws(PostgresError) -> () -> Void {
        let (claims, places) = JudgingWorker.differentClaims(batch.jobs)
        var answers = [[AskedTerm: AskedAnswer]?](repeating: nil, count: claims.count)
        var failed: [Int] = []
        let loop = ClaimsScript(evaluating: terms, as: role)
        let isDone = try ask(batch.key, loop, claims, [], [], connection) { from, count, found in
            for place in from..<from + count { answers[place] = JudgingWorker.nulls(terms) }
            for row in found.rows {
                guard let place = row.place(after: from) else { continue }
                if row[2] != nil { failed.append(place) } else { answers[place] = JudgingWorker.values(terms, row) }
            }
        }
        if isDone { try evaluateApart(terms, role, claims, failed, &answers, batch.key, connection) }
        metrics.policyTerms.add(claims.count)
        let found = answers
        return {
            for (job, place) in zip(batch.jobs, places) {
                if case .terms(_, let reply) = job.work { reply.give(place.flatMap { found[$0] }) }
            }
        }
    }

    /// Evaluates each term separately for the claims on which the evaluation of all terms failed. One failing term then
    /// does not affect the others.
    private func evaluateApart(
        _ terms: [AskedTerm], _ role: String, _ claims: [String], _ failed: [Int],
        _ answers: inout [[AskedTerm: AskedAnswer]?], _ key: JudgingKey, _ connection: JudgingConnection
    ) throws(PostgresError) {
        if failed.isEmpty { return }
        var unknown: Set<Int> = []
        for term in terms {
            var found: [Int: AskedAnswer] = [:]
            let loop = ClaimsScript(evaluating: [term], as: role)
            let isDone = try ask(
                key, loop, failed.map { claims[$0] }, [], [], connection
            ) { from, _, given in
                for row in given.rows {
                    guard let place = row.place(after: from) else { continue }
                    if let state = row[2], SQLState.isInconclusive(state) { unknown.insert(place) }
                    found[place] = row[2] == nil ? .value(row[3].map { Array($0.utf8) }) : .failed
                }
            }
            for (index, place) in failed.enumerated() {
                answers[place]?[term] = found[index] ?? .value(nil)
                if !isDone || unknown.contains(index) { answers[place] = nil }
            }
        }
    }

    private static func nulls(_ terms: [AskedTerm]) -> [AskedTerm: AskedAnswer] {
        Dictionary(terms.map { ($0, .value(nil)) }, uniquingKeysWith: { first, _ in first })
    }

    private static func values(_ terms: [AskedTerm], _ row: [String?]) -> [AskedTerm: AskedAnswer] {
        precondition(row.count == terms.count + 3, "each term has its own value")
        return Dictionary(
            zip(terms, row.dropFirst(3)).map { ($0, .value($1.map { Array($0.utf8) })) },
            uniquingKeysWith: { first, _ in first })
    }

    /// Returns the distinct claims, and for each job the index of its claims. The index is nil if the claims contain a
    /// zero byte, which cannot be sent to PostgreSQL.
    private static func differentClaims(_ jobs: [JudgingJob]) -> ([String], [Int?]) {
        var claims: [String] = []
        var known: [String: Int] = [:]
        let places = jobs.map { job -> Int? in
            guard let text = job.claims, !text.utf8.contains(0) else { return nil }
            if let place = known[text] { return place }
            claims.append(text)
            known[text] = claims.count - 1
            return claims.count - 1
        }
        assert(places.count == jobs.count && claims.count <= jobs.count, "each job has its place, if any")
        return (claims, places)
    }

    // MARK: Memberships

    func filled(
        _ key: FillKey, _ batch: JudgingBatch, _ connection: JudgingConnection, isOwn: Bool
    ) throws(PostgresError) -> () -> Void {
        let role = key.reader == .caller ? key.role : nil
        // The hub's own login must run no policy, so it reads only tables whose rows no policy filters.
        let owner: UInt32? = if case .definer(let owner) = key.reader { owner } else { nil }
        func all(_ answer: MembershipFill) -> () -> Void {
            { for job in batch.jobs { if case .fill(_, let reply) = job.work { reply.give(answer) } } }
        }
        var reading: TableReading?
        if isOwn {
            switch try connection.reading(key.table, as: role, owner: owner) {
            case .readable(let found): reading = found
            case .unreadable: return all(.unreadable)
            case .unanswered: return all(.unavailable)
            }
        } else if try !mayBecome(role, connection) {
            return all(.unreadable)
        }
        let (claims, places) = JudgingWorker.differentClaims(batch.jobs)
        var fills = [MembershipFill](repeating: .unavailable, count: claims.count)
        let limit = Limits.maximumMembershipKeys
        let loop = ClaimsScript(filling: key.sql, as: role, limit: limit + 1)
        let xids = Set(batch.jobs.compactMap(\.seeing))
        _ = try ask(batch.key, loop, claims, [], xids, connection, reading: reading) { from, count, found in
            let read = JudgingWorker.fills(found, count, isOwn: isOwn)
            for (index, fill) in read.enumerated() { fills[from + index] = fill }
        }
        metrics.membershipFills.add(claims.count)
        assert(fills.allSatisfy { $0.holds(xids) }, "keys hold what the transactions did that they are to hold")
        let known = try durable(fills, connection)
        return {
            for (job, place) in zip(batch.jobs, places) {
                if case .fill(_, let reply) = job.work { reply.give(place.map { known[$0] } ?? .unavailable) }
            }
        }
    }

    /// Sets the position of each `MembershipFill` to an LSN that is on PostgreSQL's disk and follows all changes that
    /// the keys include. If PostgreSQL does not write so far in time, none of them counts, because a crash could take
    /// back what its keys include.
    private func durable(
        _ fills: [MembershipFill], _ connection: JudgingConnection
    ) throws(PostgresError) -> [MembershipFill] {
        let positions = fills.compactMap { fill in if case .filled(let rows) = fill { rows.position } else { nil } }
        guard let last = positions.max() else { return fills }
        let end = try connection.session.durableEnd(from: last)
        return fills.map { fill in
            guard case .filled(var rows) = fill else { return fill }
            guard end >= last else { return .unavailable }
            rows.position = end
            return .filled(rows)
        }
    }

    private static func fills(_ found: ScriptOutcome.Answers, _ count: Int, isOwn: Bool) -> [MembershipFill] {
        var keys = [[FilledMembership.Key]](repeating: [], count: count)
        var errors: [Int: String] = [:]
        for row in found.rows {
            guard let place = row.place(after: 0), place < count else { continue }
            if let state = row[2] {
                errors[place] = state
            } else {
                keys[place].append(
                    FilledMembership.Key(text: row[3].map { Array($0.utf8) }, count: row[4].flatMap { Int($0) } ?? 0))
            }
        }
        assert(errors.keys.allSatisfy { $0 < count }, "a failure is somebody's who was asked about")
        return (0..<count).map { place in
            if let state = errors[place] { return refusal(state, isOwn: isOwn) }
            guard keys[place].count <= Limits.maximumMembershipKeys else { return .unreadable }
            return .filled(
                FilledMembership(keys: keys[place], snapshot: found.snapshot, position: found.position))
        }
    }

    /// True if the login may switch to the role. False is the login's fault and does not count against the role and
    /// claims that asked.
    private func mayBecome(_ role: String?, _ connection: JudgingConnection) throws(PostgresError) -> Bool {
        guard let role, try !connection.mayBecome(role) else { return true }
        warnCannotBecome(role)
        return false
    }

    /// Converts an SQLSTATE to the result of reading a membership. The error counts against the role and claims only if
    /// their own query would meet it. After unknown names, or if the hub's own login lacks rights, PostgreSQL must
    /// decide on each row instead.
    private static func refusal(_ state: String, isOwn: Bool) -> MembershipFill {
        if SQLState.isInconclusive(state) { return .unavailable }
        let isOfTheClaimant = !state.hasPrefix("42") || state == SQLState.insufficientPrivilege && !isOwn
        return isOfTheClaimant ? .failed(sqlState: state) : .unreadable
    }

    // MARK: Explanations

    func explained(_ batch: JudgingBatch, _ connection: JudgingConnection) throws(PostgresError) -> () -> Void {
        guard let job = batch.jobs.first, case .explanation(let explanation, let reply) = job.work else { return {} }
        assert(batch.jobs.count == 1, "an explanation is asked by itself")
        let values = try connection.explain(explanation)
        return { reply.give(values) }
    }
}

extension JudgingJob {
    fileprivate var claims: String? {
        switch work {
        case .terms(let subject, _), .fill(let subject, _): subject.claims
        case .rows, .generation, .explanation, .sight: nil
        }
    }
}

extension MembershipFill {
    fileprivate func holds(_ xids: Set<UInt32>) -> Bool {
        guard case .filled(let rows) = self else { return true }
        return xids.allSatisfy(rows.snapshot.contains)
    }
}

extension [String?] {
    /// Returns the index of the claims that this row answers, or nil if the row has none. `first` is the index of the
    /// first claims that the statement was about.
    func place(after first: Int) -> Int? {
        self[0].flatMap { Int($0) }.map { first + $0 - 1 }
    }
}

extension PolicyTable {
    /// Stores the answers of a statement about these rows and claims. A set of claims without an answer may read none
    /// of the rows.
    mutating func take(_ found: [[String?]], rows: Range<Int>, claims: Range<Int>) {
        for row in rows { for place in claims { self[row, place] = false } }
        for answer in found {
            guard let place = answer.place(after: claims.lowerBound), claims.contains(place) else {
                Impossible.happened("an answer is about somebody who was asked about", in: .judging)
                return forget(rows, claims)
            }
            let hasFailed = answer[2].map { !SQLState.isPassing($0) && $0 != ClaimsScript.unmade } ?? false
            if answer[1] == "0" {
                forget(rows, place..<place + 1)
                if hasFailed { for row in rows { fail(row, place) } }
                continue
            }
            let element = answer[1].flatMap { Int($0) }.map { rows.lowerBound + $0 - 1 }
            if answer[2] != nil {
                failed(element, rows, place, isLasting: hasFailed)
            } else if let element {
                // This element was the statement's only row. NULL means that the role with these claims may not read
                // it.
                if rows.contains(element) { self[element, place] = answer[3] != nil }
            } else {
                takeLetters(answer[3] ?? "", rows, place)
            }
        }
    }

    /// Stores a text with one digit for each row. Only `1` means that the row may be read; missing digits at the end
    /// mean no.
    private mutating func takeLetters(_ letters: String, _ rows: Range<Int>, _ place: Int) {
        guard letters.utf8.count <= rows.count else {
            Impossible.happened("an answer is about rows that were asked about", in: .judging)
            return forget(rows, place..<place + 1)
        }
        for (row, letter) in zip(rows, letters.utf8) where letter == UInt8(ascii: "1") { self[row, place] = true }
    }

    /// Sets the answers to unknown.
    private mutating func forget(_ rows: Range<Int>, _ claims: Range<Int>) {
        for row in rows { for place in claims { self[row, place] = nil } }
    }

    /// Records a failed evaluation. If the statement had several rows, nothing is recorded, because each row is then
    /// tried separately. `isLasting` is true if the evaluation would fail again.
    private mutating func failed(_ element: Int?, _ rows: Range<Int>, _ place: Int, isLasting: Bool) {
        guard let row = element ?? (rows.count == 1 ? rows.lowerBound : nil), rows.contains(row) else { return }
        if isLasting { fail(row, place) } else { self[row, place] = nil }
    }
}
