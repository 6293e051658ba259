import Bytes
import Change
import EventLog
import System
import TestSupport
import Testing

@testable import History

@Suite(.within(minutes: 5)) struct MaskRulesTests {
    private let notes = TableName(schema: "public", name: "notes")
    private let users = TableName(schema: "app", name: "users")

    @Test(arguments: [
        "email", "Email", "user_email", "emailAddress", "password_hash", "encrypted_password", "access_token", "apiKey",
        "phone", "phone_number", "street_address", "ip_address", "ssn", "client_secret", "iban", "date_of_birth",
        "E-Mail", "e mail", "Private-Key",
    ])
    func `well-known names are masked in every table`(column: String) {
        #expect(MaskRules.usual.masks(column, of: notes) && MaskRules.usual.masks(column, of: users))
    }

    @Test(arguments: [
        "id", "body", "name", "title", "created_at", "className", "cardinality", "footprint", "mailing", "addressee_id",
    ])
    func `others are not`(column: String) { #expect(!MaskRules.usual.masks(column, of: notes)) }

    @Test func `a file's rules come behind the usual ones, and the last that fits wins`() throws {
        let rules = try MaskRules(
            file: """
                # what patients have
                users.diagnosis   # any schema
                "Odd Schema"."a.b".*
                app.*.pin

                !public.notes.email
                app.users.*_id
                ! app.users.team_id
                """)
        #expect(rules.masks("diagnosis", of: users) && !rules.masks("diagnosis", of: notes))
        #expect(rules.masks("anything", of: TableName(schema: "Odd Schema", name: "a.b")))
        #expect(rules.masks("pin", of: users) && !rules.masks("pin", of: notes))
        #expect(rules.masks("email", of: users) && !rules.masks("email", of: notes))
        #expect(rules.masks("org_id", of: users) && !rules.masks("team_id", of: users) && !rules.masks("_i", of: users))
        let own = try MaskRules(file: "!*\nbody")
        #expect(own.masks("body", of: notes) && !own.masks("email", of: notes))
    }

    @Test(arguments: ["a.b.c.d", "a b.", ".x", "\"open", "!", "x\n\n!a..b"])
    func `what is no rule is said with its line`(text: String) {
        do {
            _ = try MaskRules(file: text)
            Issue.record("\(text) was taken")
        } catch {
            #expect(error.line == text.split(separator: "\n", omittingEmptySubsequences: false).count)
        }
    }

    @Test(arguments: seeds(50)) func `a pattern fits what its pieces come in order in`(seed: Seed) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<200 {
            func word(_ letters: String, _ most: Int) -> String {
                String(
                    (0..<Int.random(in: 0...most, using: &random)).compactMap { _ in
                        letters.randomElement(using: &random)
                    })
            }
            let (pattern, name) = (word("aab*", 6), word("aab", 7))
            #expect(
                NamePattern(pattern).fits(NamePattern.small(name)) == fits(Substring(pattern), Substring(name)),
                "\(pattern) \(name)")
        }
    }

    /// True if the pattern matches the name, by a slow implementation of the same rule.
    private func fits(_ pattern: Substring, _ name: Substring) -> Bool {
        guard let first = pattern.first else { return name.isEmpty }
        if first != "*" { return name.first == first && fits(pattern.dropFirst(), name.dropFirst()) }
        return fits(pattern.dropFirst(), name) || (!name.isEmpty && fits(pattern, name.dropFirst()))
    }
}

@Suite(.within(minutes: 5)) struct MaskingTests {
    private let table = TableName(schema: "public", name: "notes")
    private static let secret = "planted-secret"

    /// Returns random JSON. Values under masked names contain the secret, other values do not.
    private static func json(
        _ random: inout SeededRandom, isSecret: Bool, depth: Int = 0, isText: Bool = false
    ) -> String {
        let space = ["", " ", "\n\t"].randomElement(using: &random) ?? ""
        let kinds = depth < 5 ? 0...(isText ? 5 : 6) : 2...5
        switch Int.random(in: kinds, using: &random) {
        case 0:
            let members = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                let isMasked = Bool.random(using: &random)
                let name =
                    (isMasked ? ["email", "e\\u006dail", "API_TOKEN"] : ["a", "b\\\"", "é"])
                    .randomElement(using: &random) ?? "a"
                return "\"\(name)\"\(space):\(space)"
                    + json(&random, isSecret: isSecret || isMasked, depth: depth + 1, isText: isText)
            }
            return "{\(space)" + members.joined(separator: "\(space),") + "\(space)}"
        case 1:
            let values = (0..<Int.random(in: 0...4, using: &random)).map { _ in
                json(&random, isSecret: isSecret, depth: depth + 1, isText: isText)
            }
            return "[\(space)" + values.joined(separator: ",\(space)") + "]"
        case 2: return "null"
        case 3: return "-1.5e3"
        case 4: return "true"
        case 5: return isSecret ? "\"\(secret)\"" : "\"x \\\" y\""
        default:
            // JSON inside a string, as in payloads. One such level is enough.
            var writer = ByteWriter()
            JSONText.appendString(json(&random, isSecret: isSecret, depth: 2, isText: true), to: &writer)
            return writer.bytes.text
        }
    }

    @Test(arguments: seeds(10)) func `no JSON shows what it has under a masked name`(seed: Seed) throws {
        var random = SeededRandom(seed: seed)
        let masking = Masking()
        for _ in 0..<25 {
            let text = "{\"x\":" + Self.json(&random, isSecret: false) + "}"
            let shown = String(decoding: masking.lookingInto(Array(text.utf8), of: [table]), as: UTF8.self)
            #expect(!shown.contains(Self.secret), "\(text) → \(shown)")
            #expect(isJSON(shown), "\(text) → \(shown)")
            if !text.contains("email"), !text.contains("006dail"), !text.contains("TOKEN") { #expect(shown == text) }
        }
    }

    private func isJSON(_ text: String) -> Bool {
        let bytes = Array(text.utf8)
        var scanner = JSONScanner(bytes.span.bytes, maximumDepth: 64)
        while let token = try? scanner.next() { if token == .end { return true } }
        return false
    }

    @Test func `equal values have equal marks, others not, and each run its own`() {
        let (masking, other) = (Masking(), Masking())
        #expect(masking.tag([1, 2]) == masking.tag([1, 2]) && masking.tag([1, 2]) != masking.tag([2, 1]))
        #expect(masking.tag([1, 2]) != other.tag([1, 2]))
        #expect(MaskMark.short(0x0123_4567_89ab_cdef) == "*** 01234567")
    }

    @Test func `what is hidden on demand stays so, and what is asked for is shown`() throws {
        let mask = try #require(ColumnMask("public.notes.email"))
        #expect(!Masking(showing: [mask]).masks("email", of: table))
        #expect(Masking(showing: [mask]).masks("email", of: TableName(schema: "app", name: "notes")))
        #expect(Masking(hiding: [mask], showing: [mask]).masks("email", of: table))
        let all = try #require(ColumnMask("*"))
        #expect(Masking(showing: [all]).isNothing && !Masking(hiding: [mask], showing: [all]).isNothing)
        #expect(Masking().masks("email", of: [TableName(schema: "a", name: "b"), table]))
    }

    @Test func `filters keep their columns and lose the values`() {
        let masking = Masking()
        #expect(masking.filter("id=eq.7", of: table) == "id=eq.7")
        #expect(masking.filter("email=eq.\(Self.secret)", of: table).hasPrefix("email=*** "))
        #expect(!masking.filter("and(id.eq.7,phone.eq.\(Self.secret))", of: table).contains(Self.secret))
    }

    /// Checks every type that may contain names, and values that masking cannot parse.
    @Test func `whatever a column's type is, the secret is not shown`() throws {
        let stage = try HistoryStage()
        let texts: [(String, UInt32, String)] = [
            ("email", 25, Self.secret), ("token", 17, "\\x\(Self.secret)"), ("phones", 1009, "{\(Self.secret),b}"),
            ("j", 114, #"{ "email" : "\#(Self.secret)" }"#),
            ("b", 3802, #"{"a": [{"password": ["\#(Self.secret)"]}]}"#),
            ("bs", 3807, #"{"{\"email\": \"\#(Self.secret)\"}"}"#), ("t", 25, #"{"phone":"\#(Self.secret)"}"#),
            ("x", 142, "<a><email>\(Self.secret)</email></a>"), ("js", 1009, #"{"{\"email\":\"\#(Self.secret)\"}",b}"#),
            ("half", 25, #"{"email":"\#(Self.secret)""#), ("c", 20_000, "(\(Self.secret),1)"),
            ("cs", 20_001, #"{"(\#(Self.secret),1)"}"#),
            (
                "deep", 3802,
                String(repeating: "[", count: 70) + #"{"email":"\#(Self.secret)"}"# + String(repeating: "]", count: 70)
            ),
        ]
        let relation = Relation(
            oid: 16_500, schema: "public", name: "types", identity: .full,
            columns: texts.map { column($0.0, $0.1, key: $0.0 == "email", identity: true) })
        let row = texts.map { RowValue.text(Array($0.2.utf8)) }
        try stage.commit([
            .insert(relation, row), .update(relation, row.map { _ in "x" }, old: row, .full),
            .delete(relation, row, .full), .message(Array("token".utf8), Array(Self.secret.utf8)),
            .message(Array("app".utf8), Array(#"{"email":"\#(Self.secret)"}"#.utf8)),
        ])
        let log = HistoryLog(directory: stage.storage, masking: Masking())
        let changes = try log.items(HistoryQuery()).compactMap(\.recorded)
        #expect(changes.count == 5)
        for change in changes {
            let values = change.old + change.new + [.text(change.content)] + change.key.map(\.value)
            for value in values { #expect(value.plainText?.contains(Self.secret) != true, "\(value)") }
        }
        #expect(changes[1].changedColumns?.count == texts.count && changes[0].isMasked(0) && !changes[0].isMasked(3))
        #expect(!String(decoding: try log.export().joined(), as: UTF8.self).contains(Self.secret))
        let table = try TableAsOf(log, TableName(schema: "public", name: "types"), HistoryQuery(), atMost: 9)
        try table.visit { row in #expect(!"\(row)".contains(Self.secret)) }
    }

    @Test func `a condition does not find what is hidden in a value`() throws {
        let stage = try HistoryStage()
        let relation = Relation(
            oid: 16_500, schema: "public", name: "types", identity: .full,
            columns: [column("id", 23, key: true, identity: true), column("j", 3802)])
        try stage.commit([.insert(relation, ["1", #"{"email": "me@x"}"#]), .insert(relation, ["2", #"{"a": 1}"#])])
        func count(_ condition: String, _ masking: Masking) throws -> Int {
            var query = HistoryQuery()
            query.conditions = [try #require(RowCondition(condition))]
            return try HistoryLog(directory: stage.storage, masking: masking).items(query).compactMap(\.recorded).count
        }
        #expect(try count(#"j={"email": "me@x"}"#, .nothing) == 1 && count(#"j={"email": "me@x"}"#, Masking()) == 0)
        #expect(try count(#"j!={"email": "me@x"}"#, Masking()) == 2 && count(#"j={"a": 1}"#, Masking()) == 1)
    }

    @Test func `a row is not asked for by what is hidden`() throws {
        let stage = try HistoryStage()
        try stage.commit([.insert(users, ["7f3c0000-0000-4000-8000-000000000001", "me@x"])])
        let log = HistoryLog(directory: stage.storage, masking: Masking())
        do {
            _ = try RowHistory(log, TableName(schema: "app", name: "users"), RowName(["email=me@x"]), HistoryQuery())
            Issue.record("it was")
        } catch let error as RowNameError {
            #expect(error == .masked(TableName(schema: "app", name: "users"), column: "email"))
        }
    }
}

@Suite(.within(minutes: 5)) struct AuditTrailTests {
    private func note(_ what: String) -> AuditNote {
        AuditNote(
            time: 1_795_255_491_000_000, action: .unmask, user: "ana \"q\"", behalf: "", command: "tidewire row",
            what: what)
    }

    @Test func `lines are read as they were written, and none goes missing unseen`() throws {
        let storage = FaultyStorage()
        let trail = AuditTrail(in: storage)
        #expect(try trail.lines().isEmpty)
        for what in ["email", "a\nb", "c"] { try trail.append(note(what)) }
        #expect(try trail.lines() == [.note(note("email")), .note(note("a\nb")), .note(note("c"))])
        // Every line contains a checksum of the line before it.
        let whole = try storage.open(AuditTrail.name, for: .reading).contents(atMost: 1 << 20)
        let lines = whole.split(separator: UInt8(ascii: "\n"))
        for missing in 0..<2 {
            var rest = lines
            rest.remove(at: missing)
            try write(rest.joined(separator: [UInt8(ascii: "\n")]) + [10], to: storage)
            #expect(try trail.lines().contains(.damaged(line: missing + 1)))
        }
        // An incomplete line counts as one damaged line, and does not affect the next line.
        try write(whole.dropLast(9), to: storage)
        try trail.append(note("d"))
        #expect(try trail.lines() == [.note(note("email")), .note(note("a\nb")), .damaged(line: 3), .note(note("d"))])
    }

    private func write(_ bytes: some Sequence<UInt8>, to storage: FaultyStorage) throws {
        let bytes = Array(bytes)
        try storage.open(AuditTrail.name, for: .creating).write(bytes.span.bytes, at: 0)
    }
}
