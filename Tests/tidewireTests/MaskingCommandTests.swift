import Bytes
import Change
import Foundation
import History
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

private let commands: [any Command] = [
    TailCommand(), RowCommand(), TransactionCommand(), StatisticsCommand(), AsOfCommand(), EventCommand(), WhoCommand(),
    UserCommand(), SessionCommand(), LogCommand(), WhyCommand(), ConfigCommand(),
]

/// Log with a secret in every place that can have one. Each secret ends in the name of its place.
struct SecretStage {
    static let secret = "planted5ecret"
    static let user = "00000000-0000-4000-8000-00000000000a"
    let log: TemporaryLog

    private static let hidden: [(name: String, type: String, oid: UInt32, value: @Sendable (String) -> String)] = [
        ("email", "text", 25, { $0 }), ("access_token", "uuid", 2950, { $0 }),
        ("phones", "_text", 1009, { "{\($0),x}" }),
        ("password", "bytea", 17, { "\\x\($0)" }), ("address", "jsonb", 3802, { "{\"street\": \"\($0)\"}" }),
        ("settings", "jsonb", 3802, { "{\"a\": [{\"api_key\": \"\($0)\"}], \"n\": 1}" }),
        ("raw", "json", 114, { "{\"phone\":\"\($0)\"}" }), ("note", "text", 25, { "{\"email\":\"\($0)\"}" }),
        ("diagnosis", "text", 25, { $0 }),
    ]

    private static func relation(_ name: String, oid: UInt32, _ columns: [(String, String, UInt32, Bool)]) -> Relation {
        Relation(
            oid: oid, schema: name == "messages" ? "realtime" : "public", name: name, identity: .full,
            columns: columns.map { name, type, oid, isKey in
                Column(name: name, typeOID: oid, typeName: type, isIdentity: true, isPrimaryKey: isKey)
            })
    }

    init() throws {
        var lines = Lines()
        // One table has a sensitive key, the other a harmless one.
        let people = Self.relation(
            "people", oid: 16_501, [("id", "int4", 23, true)] + Self.hidden.map { ($0.name, $0.type, $0.oid, false) })
        let keyed = Self.relation("subscribers", oid: 16_502, [("email", "text", 25, true), ("n", "int4", 23, false)])
        let messages = Self.relation(
            "messages", oid: 16_503,
            [("topic", "text", 25, false), ("payload", "jsonb", 3802, false), ("event", "text", 25, false)]
                + [("binary_payload", "bytea", 17, false), ("id", "uuid", 2950, true)])
        for relation in [people, keyed, messages] { lines.add(relation) }
        func row(_ place: String) -> [String: String?] {
            var row: [String: String?] = ["id": "1"]
            for column in Self.hidden { row[column.name] = column.value(Self.secret + place) }
            return row
        }
        lines.add("INSERT", people, new: row("a"))
        lines.add("UPDATE", people, old: row("a"), new: row("b"))
        lines.add("INSERT", keyed, new: ["email": Self.secret + "k", "n": "1"])
        lines.add(
            "UPDATE", keyed, old: ["email": Self.secret + "k", "n": "1"], new: ["email": Self.secret + "l", "n": "1"])
        let payload = "{\"user\": {\"phone\": \"\(Self.secret)m\"}, \"text\": \"hi\"}"
        lines.add(
            "INSERT", messages,
            new: [
                "topic": "room", "payload": payload, "event": "e", "binary_payload": "\\x\(Self.secret)",
                "id": Self.user,
            ])
        lines.addMessage(prefix: "token", "\(Self.secret)p")
        lines.addMessage(prefix: "app", "{\"password\":\"\(Self.secret)q\"}")
        lines.addNotes()
        lines.add("DELETE", people, old: row("b"))
        lines.add("INSERT", people, new: row("a"))
        log = try TemporaryLog(lines.ended)
    }

    /// Lines of an export.
    struct Lines {
        private var lines = [
            #"{"type":"header","format":"tidewire-log","version":1,"source":"7710563452674252973","epoch":"7dfdd7af39bc2da8","offset":0,"lsn":"0/0"}"#
        ]
        private var offset = 0
        private var fingerprints: [UInt32: String] = [:]

        private static func quoted(_ text: String) -> String { JSONLine.quoted(text) }

        mutating func add(_ relation: Relation) {
            var writer = ByteWriter()
            RelationCodec.encode(relation, to: &writer)
            let fingerprint = Hex.text(RelationCodec.fingerprint(of: writer.bytes))
            fingerprints[relation.oid] = fingerprint
            let columns = relation.columns.map { column in
                #"{"name":"\#(column.name)","type":"\#(column.typeName)","type_oid":\#(column.typeOID),"type_modifier":-1,"identity":true,"primary_key":\#(column.isPrimaryKey)}"#
            }
            lines.append(
                #"{"type":"relation","relation":"\#(fingerprint)","oid":\#(relation.oid),"schema":"\#(relation.schema)","table":"\#(relation.name)","replica_identity":"f","columns":[\#(columns.joined(separator: ","))]}"#
            )
        }

        private mutating func transaction(_ change: String) {
            let lsn = String(0x1000 + offset * 0x100, radix: 16, uppercase: true)
            let end = String(0x1030 + offset * 0x100, radix: 16, uppercase: true)
            let time = "2026-11-21T10:04:5\(offset % 10).000000Z"
            lines.append(
                #"{"type":"transaction","offset":\#(offset),"changes":1,"xid":\#(740 + offset),"commit_lsn":"0/\#(lsn)","end_lsn":"0/\#(end)","commit_time":"\#(time)","first_index":0,"continued":false,"lsn":"0/\#(end)","time":"\#(time)"}"#
            )
            lines.append(#"{"type":"change","offset":\#(offset),"# + change + "}")
            offset += 1
        }

        mutating func add(
            _ operation: String, _ relation: Relation, old: [String: String?]? = nil, new: [String: String?]? = nil
        ) {
            func image(_ row: [String: String?]) -> String {
                let values = relation.columns.map { column in
                    let value = row[column.name].flatMap { $0 }.map(Self.quoted) ?? "null"
                    return "\"\(column.name)\":\(value)"
                }
                return "{" + values.joined(separator: ",") + "}"
            }
            var change = #""op":"\#(operation)","relation":"\#(fingerprints[relation.oid] ?? "")""#
            if let old { change += #","old_image":"full","old":"# + image(old) }
            if let new { change += #","new":"# + image(new) }
            transaction(change)
        }

        mutating func addMessage(prefix: String, _ content: String) {
            transaction(#""op":"MESSAGE","options":1,"prefix":"\#(prefix)","content":\#(Self.quoted(content))"#)
        }

        private mutating func entry(kind: Int, _ payload: RawSpan) {
            var hex = ByteWriter()
            Hex.append(payload, to: &hex)
            let end = String(0x1030 + (offset - 1) * 0x100, radix: 16, uppercase: true)
            lines.append(
                #"{"type":"entry","offset":\#(offset),"kind":\#(kind),"changes":0,"continued":false,"lsn":"0/\#(end)","time":"2026-11-21T10:04:57.500000Z","payload":"\#(hex.bytes.text)"}"#
            )
        }

        mutating func addNotes() {
            var note = LedgerNote(.joined, time: 1_795_255_491_000_000, session: 0xa1, channel: 1)
            note.topic = Array("realtime:people".utf8)
            note.role = Array("authenticated".utf8)
            note.subject = Array(SecretStage.user.utf8)
            note.claims = Array(
                #"{"role":"authenticated","email":"\#(SecretStage.secret)c","user_metadata":{"phone":"\#(SecretStage.secret)d"}}"#
                    .utf8)
            note.bindings = Array(
                #"[{"event":"*","schema":"public","table":"people","filter":"email=eq.\#(SecretStage.secret)f"}]"#.utf8)
            var ledger = ByteWriter()
            LedgerCodec.encode([note], to: &ledger)
            entry(kind: 7, ledger.bytes)
            let meta = Array(#"{"name":"Ann","email":"\#(SecretStage.secret)g"}"#.utf8)
            var presence = ByteWriter()
            PresenceCodec.encode(
                [
                    PresenceMark(
                        event: .joined, isPrivate: false, time: 1_795_255_491_000_000, topic: Array("room".utf8),
                        key: Array("ann".utf8), ref: [49], meta: meta)
                ], to: &presence)
            entry(kind: 6, presence.bytes)
        }

        var ended: String {
            (lines + [#"{"type":"end","offset":\#(offset),"lines":\#(lines.count + 1)}"#]).joined(separator: "\n")
        }
    }

    static let rules = "public.people.diagnosis\n"

    func run(_ words: [String], files: [String: String] = ["rules": SecretStage.rules]) async -> Run {
        await tidewireTests.run(
            words + ["--log", log.path, "--mask-rules", "rules"], commands: commands, files: files)
    }
}

@Suite(.within(minutes: 5)) struct MaskingCommandTests {
    static let readings = [
        ["tail", "--from", "oldest", "--presence"], ["row", "people", "1"], ["tx", "741"], ["tx", "742"],
        ["tx", "745"],
        ["asof", "people", "--to", "@2"], ["asof", "subscribers"], ["stats"], ["event", "1"], ["event", "3"],
        ["event", "4"], ["event", "5"], ["who", "1", "--recorded"], ["user", SecretStage.user], ["session"],
    ]

    @Test func `no output shows what is masked, wherever it stands`() async throws {
        let stage = try SecretStage()
        defer { stage.log.remove() }
        let forms = Self.readings.flatMap { [$0, $0 + ["--json"], $0 + ["-o", "csv"], $0 + ["-o", "md"]] }
        for words in forms + [["log", "export"]] {
            let result = await stage.run(words)
            #expect(result.exitCode == .ok, "\(words): \(result.errors)")
            #expect(!(result.output + result.errors).contains(SecretStage.secret), "\(words): \(result.output)")
            // The secret must not appear as the bytes of a payload, either.
            let hex = SecretStage.secret.utf8.map { String($0, radix: 16) }.joined()
            #expect(!result.output.contains(hex), "\(words): \(result.output)")
        }
        // These checks show that the log has the secrets for which the other checks search.
        let whole = await stage.run(["tail", "--from", "oldest", "--presence", "--json", "--unmask", "*"])
        #expect(whole.output.ranges(of: SecretStage.secret).count > 30, "\(whole.errors)")
        let row = await stage.run(["row", "people", "1"])
        #expect(row.unmarked.contains("email: *** MARK") && row.output.contains(#""n": 1"#), "\(row.output)")
    }

    @Test func `nothing is asked for by what is masked`() async throws {
        let stage = try SecretStage()
        defer { stage.log.remove() }
        for words in [
            ["tail", "--where", "email=x"], ["stats", "--where", "diagnosis is null"], ["row", "people", "email=x"],
            ["row", "subscribers", "x"],
        ] {
            let refused = await stage.run(words)
            #expect(
                refused.exitCode == .usage && refused.errors.contains("is masked, and conditions on it could reveal"),
                "\(refused)")
        }
        let found = await stage.run(["row", "subscribers", SecretStage.secret + "k", "--unmask", "subscribers.email"])
        #expect(found.exitCode == .ok && found.output.contains(SecretStage.secret + "l"), "\(found.errors)")
    }

    @Test func `what is unmasked is written down first, or not shown`() async throws {
        let stage = try SecretStage()
        defer { stage.log.remove() }
        #expect(await stage.run(["log", "audit"]).exitCode == .notFound)
        let shown = await stage.run(["row", "people", "1", "--unmask", "email", "--unmask", "people.diagnosis"])
        #expect(shown.exitCode == .ok && shown.output.contains("email: \"\(SecretStage.secret)a\""), "\(shown)")
        #expect(!shown.output.contains("phone\":\"\(SecretStage.secret)"), "\(shown.output)")
        let audit = await stage.run(["log", "audit"])
        #expect(audit.exitCode == .ok, "\(audit.errors)")
        let line = audit.output.split(separator: "\n").last ?? ""
        #expect(
            line.contains("unmask  \(ProcessUser.name())")
                && line.hasSuffix("tidewire row      email, people.diagnosis"), "\(audit.output)")
        #expect(!audit.output.contains(SecretStage.secret))
        // The audit file cannot be written, so the command shows nothing.
        let refused = await stage.run(["row", "people", "1", "--unmask", "email", "--audit-file", "/nowhere/audit"])
        #expect(refused.exitCode == .notFound && refused.output.isEmpty, "\(refused.output)")
        #expect(refused.errors.contains("nothing was unmasked, because the audit file cannot be written"))
        let typo = await stage.run(["row", "people", "1", "--unmask", "diagnossis"])
        #expect(typo.exitCode == .usage && typo.errors.contains("did you mean diagnosis?"), "\(typo.errors)")
    }

    @Test(arguments: [
        (["rules": "a.b.c.d"], "mask_rules: rules, line 1: a.b.c.d is no rule"),
        ([:], "there is no file rules, so the columns to mask are unknown"),
    ])
    func `rules that cannot be read hide everything`(files: [String: String], message: String) async throws {
        let stage = try SecretStage()
        defer { stage.log.remove() }
        let result = await stage.run(["tail"], files: files)
        #expect(result.exitCode == .usage && result.output.isEmpty && result.errors.contains(message), "\(result)")
    }

    @Test func `rules of the hub in the log's directory hold for every reader, whatever his own are`() async throws {
        let stage = try SecretStage()
        defer { stage.log.remove() }
        func says(_ words: [String], _ own: String?) async -> Run {
            await run(
                words + ["--log", stage.log.path] + (own == nil ? [] : ["--mask-rules", "own"]), commands: commands,
                files: own.map { ["own": $0] } ?? [:])
        }
        #expect(await says(["row", "people", "1"], nil).output.contains(SecretStage.secret))
        try SecretStage.rules.write(toFile: stage.log.path + "/mask.rules", atomically: true, encoding: .utf8)
        for words in Self.readings + [["log", "export"]] {
            for own in [nil, "!*", "pin"] {
                let result = await says(words, own)
                #expect(result.exitCode == .ok, "\(words): \(result.errors)")
                #expect(!(result.output + result.errors).contains(SecretStage.secret), "\(words) \(own ?? "")")
            }
        }
        try "a.b.c.d".write(toFile: stage.log.path + "/mask.rules", atomically: true, encoding: .utf8)
        let broken = await says(["tail"], nil)
        #expect(broken.exitCode == .unreachable && broken.output.isEmpty, "\(broken)")
    }
}
