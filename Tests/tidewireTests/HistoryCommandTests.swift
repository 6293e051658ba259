import Bytes
import Change
import Glibc
import History
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

/// Export of a small log: the changes of one row, and two messages.
let export = #"""
    {"type":"header","format":"tidewire-log","version":1,"source":"7710563452674252973","epoch":"7dfdd7af39bc2da8","offset":12,"lsn":"0/0"}
    {"type":"relation","relation":"0a021ce2f249ec4b","oid":16406,"schema":"public","table":"fullrep","replica_identity":"f","columns":[{"name":"id","type":"int4","type_oid":23,"type_modifier":-1,"identity":true,"primary_key":true},{"name":"email","type":"text","type_oid":25,"type_modifier":-1,"identity":true,"primary_key":false},{"name":"body","type":"text","type_oid":25,"type_modifier":-1,"identity":true,"primary_key":false},{"name":"deleted_at","type":"timestamptz","type_oid":1184,"type_modifier":-1,"identity":true,"primary_key":false}]}
    {"type":"transaction","offset":12,"changes":1,"xid":741,"commit_lsn":"0/153EF78","end_lsn":"0/153EFA8","commit_time":"2026-11-21T10:04:51.703277Z","first_index":0,"continued":false,"lsn":"0/153EFA8","time":"2026-11-21T10:04:51.703277Z"}
    {"type":"change","offset":12,"op":"INSERT","relation":"0a021ce2f249ec4b","new":{"id":"5","email":"me@x","body":"call back","deleted_at":null}}
    {"type":"transaction","offset":13,"changes":1,"xid":742,"commit_lsn":"0/153F018","end_lsn":"0/153F048","commit_time":"2026-11-21T10:04:51.704060Z","first_index":0,"continued":false,"lsn":"0/153F048","time":"2026-11-21T10:04:51.704060Z"}
    {"type":"change","offset":13,"op":"UPDATE","relation":"0a021ce2f249ec4b","old_image":"full","old":{"id":"5","email":"me@x","body":"call back","deleted_at":null},"new":{"id":"5","email":"me@x","body":"called","deleted_at":null}}
    {"type":"transaction","offset":14,"changes":1,"xid":743,"commit_lsn":"0/153F0B8","end_lsn":"0/153F0E8","commit_time":"2026-11-21T10:04:51.708628Z","first_index":0,"continued":false,"lsn":"0/153F0E8","time":"2026-11-21T10:04:51.708628Z"}
    {"type":"change","offset":14,"op":"UPDATE","relation":"0a021ce2f249ec4b","old_image":"full","old":{"id":"5","email":"me@x","body":"called","deleted_at":null},"new":{"id":"5","email":"me@x","body":"called","deleted_at":"2026-03-01 10:20:30.5+00"}}
    {"type":"transaction","offset":15,"changes":1,"xid":744,"commit_lsn":"0/153F1A0","end_lsn":"0/153F1D0","commit_time":"2026-11-21T10:04:51.709110Z","first_index":0,"continued":false,"lsn":"0/153F1D0","time":"2026-11-21T10:04:51.709110Z"}
    {"type":"change","offset":15,"op":"UPDATE","relation":"0a021ce2f249ec4b","old_image":"full","old":{"id":"5","email":"me@x","body":"called","deleted_at":"2026-03-01 10:20:30.5+00"},"new":{"id":"6","email":"me@x","body":"called","deleted_at":"2026-03-01 10:20:30.5+00"}}
    {"type":"transaction","offset":16,"changes":1,"xid":745,"commit_lsn":"0/153F228","end_lsn":"0/153F258","commit_time":"2026-11-21T10:04:51.710816Z","first_index":0,"continued":false,"lsn":"0/153F258","time":"2026-11-21T10:04:51.710816Z"}
    {"type":"change","offset":16,"op":"DELETE","relation":"0a021ce2f249ec4b","old_image":"full","old":{"id":"6","email":"me@x","body":"called","deleted_at":"2026-03-01 10:20:30.5+00"}}
    {"type":"transaction","offset":17,"changes":1,"xid":0,"commit_lsn":"0/153F2D8","end_lsn":"0/153F2D8","commit_time":"1970-01-01T00:00:00.000000Z","first_index":0,"continued":false,"lsn":"0/153F2D8","time":"1970-01-01T00:00:00.000000Z"}
    {"type":"change","offset":17,"op":"MESSAGE","prefix":"app","content":"alone"}
    {"type":"transaction","offset":18,"changes":1,"xid":746,"commit_lsn":"0/153F2D8","end_lsn":"0/153F308","commit_time":"2026-11-21T10:04:51.711246Z","first_index":0,"continued":false,"lsn":"0/153F308","time":"2026-11-21T10:04:51.711246Z"}
    {"type":"change","offset":18,"op":"MESSAGE","options":1,"prefix":"app","content":"hello"}
    {"type":"end","offset":19,"lines":17}
    """#

/// Fingerprint of the relation below, computed as ingest does.
private let messagesFingerprint: String = {
    let texts = [("topic", 25, "text"), ("extension", 25, "text"), ("payload", 3802, "jsonb"), ("event", 25, "text")]
    let columns = (texts + [("private", 16, "bool"), ("id", 2950, "uuid")]).map { name, oid, type in
        Column(
            name: name, typeOID: UInt32(oid), typeName: type, isIdentity: name == "id", isPrimaryKey: name == "id")
    }
    var writer = ByteWriter()
    RelationCodec.encode(
        Relation(
            oid: 16_406, schema: "realtime", name: "messages_2026_11_21", identity: .primaryKey, columns: columns),
        to: &writer)
    return Hex.text(RelationCodec.fingerprint(of: writer.bytes))
}()

private let commands: [any Command] = [
    TailCommand(), RowCommand(), TransactionCommand(), StatisticsCommand(), AsOfCommand(), LogCommand(), SlotCommand(),
]

/// Runs a command on the log made from the export.
private func onLog(_ words: String..., width: Int? = nil) async throws -> Run {
    let directory = try TemporaryLog()
    defer { directory.remove() }
    return await run(words + ["--log", directory.path], commands: commands, width: width)
}

struct TemporaryLog {
    let path: String

    init(_ export: String = export) throws {
        path = "/tmp/tidewire-test-log-\(UInt64.random(in: 0 ... .max))"
        let log = LogImport(into: try DiskDirectory(path, creating: true), segmentBytes: 1 << 16)
        for line in export.split(separator: "\n") {
            let bytes = Array(line.utf8)
            try log.take(bytes.span.bytes)
        }
        try log.finish()
    }

    func remove() {
        guard let directory = try? DiskDirectory(path) else { return }
        for name in (try? directory.names()) ?? [] { try? directory.remove(name) }
        rmdir(path)
    }
}

@Suite(.within(minutes: 5)) struct HistoryCommandTests {
    @Test func `tail prints a table`() async throws {
        let result = try await onLog("tail", "--from", "xid:742", "--to", "@15")
        #expect(result.exitCode == .ok && result.errors.isEmpty)
        #expect(
            result.output == """
                  OFFSET  TIME (UTC)               LSN            XID  OP  TABLE             KEY           CHANGED
                      13  2026-11-21 10:04:51.704  0/153F018      742  U   public.fullrep    5             body: "call back"→"called"
                      14  2026-11-21 10:04:51.708  0/153F0B8      743  U   public.fullrep    5             deleted_at: null→"2026-03-01T10:20:30.5+00:00"
                """ + "\n")
    }

    @Test func `tail prints JSON with names that stay`() async throws {
        let result = try await onLog("tail", "-n", "3", "--json")
        #expect(
            result.unmarked == #"""
                {"offset":16,"epoch":"7dfdd7af39bc2da8","lsn":"0/153F228","end_lsn":"0/153F258","xid":745,"index":0,"time":"2026-11-21T10:04:51.710816Z","origin":null,"op":"DELETE","schema":"public","table":"fullrep","key":{"id":6},"record":null,"old_record":{"id":6,"email":"*** MARK","body":"called","deleted_at":"2026-03-01T10:20:30.5+00:00"}}
                {"offset":17,"epoch":"7dfdd7af39bc2da8","lsn":"0/153F2D8","end_lsn":"0/153F2D8","xid":0,"index":0,"time":null,"origin":null,"op":"MESSAGE","schema":null,"table":null,"transactional":false,"prefix":"app","content":"alone"}
                {"offset":18,"epoch":"7dfdd7af39bc2da8","lsn":"0/153F2D8","end_lsn":"0/153F308","xid":746,"index":0,"time":"2026-11-21T10:04:51.711246Z","origin":null,"op":"MESSAGE","schema":null,"table":null,"transactional":true,"prefix":"app","content":"hello"}
                """# + "\n")
    }

    @Test func `tail shows messages as messages, and who was there when asked`() async throws {
        // These lines are what `tidewire log export` writes. The entry of kind 6 is a join of "ann", and a leave.
        let log = try TemporaryLog(
            #"""
            {"type":"header","format":"tidewire-log","version":1,"source":"7710563452674252973","epoch":"7dfdd7af39bc2da8","offset":12,"lsn":"0/0"}
            {"type":"entry","offset":12,"kind":6,"changes":0,"continued":false,"lsn":"0/0","time":"2026-11-21T10:04:51.700000Z","payload":"0102000000010100201898874206000600030002000b000000726f6f6d3a31616e6e72317b226e223a22416e6e227d020000201898874206000600030002000b000000726f6f6d3a31616e6e72317b226e223a22416e6e227d"}
            {"type":"relation","relation":"RELATION","oid":16406,"schema":"realtime","table":"messages_2026_11_21","replica_identity":"d","columns":[{"name":"topic","type":"text","type_oid":25,"type_modifier":-1,"identity":false,"primary_key":false},{"name":"extension","type":"text","type_oid":25,"type_modifier":-1,"identity":false,"primary_key":false},{"name":"payload","type":"jsonb","type_oid":3802,"type_modifier":-1,"identity":false,"primary_key":false},{"name":"event","type":"text","type_oid":25,"type_modifier":-1,"identity":false,"primary_key":false},{"name":"private","type":"bool","type_oid":16,"type_modifier":-1,"identity":false,"primary_key":false},{"name":"id","type":"uuid","type_oid":2950,"type_modifier":-1,"identity":true,"primary_key":true}]}
            {"type":"transaction","offset":12,"changes":1,"xid":741,"commit_lsn":"0/153EF78","end_lsn":"0/153EFA8","commit_time":"2026-11-21T10:04:51.703277Z","first_index":0,"continued":false,"lsn":"0/153EFA8","time":"2026-11-21T10:04:51.703277Z"}
            {"type":"change","offset":12,"op":"INSERT","relation":"RELATION","new":{"topic":"room:1","extension":"broadcast","payload":"{\"t\": \"hi\"}","event":"note","private":"t","id":"5f0c3b1e-6a55-4d5c-9a44-0d9a1f6e7c11"}}
            {"type":"end","offset":13,"lines":6}
            """#.replacing("RELATION", with: messagesFingerprint))
        defer { log.remove() }
        let plain = await run(["tail", "--log", log.path], commands: commands)
        #expect(plain.output.contains("note → room:1 (private): {\"t\": \"hi\"}"), "\(plain.output)\(plain.errors)")
        #expect(!plain.output.contains("joined"))
        let full = await run(["tail", "--presence", "--log", log.path], commands: commands)
        let lines = full.output.split(separator: "\n").map(String.init)
        #expect(lines.count == 4, "\(full.output)")
        #expect(
            lines.dropFirst().first?.hasSuffix(#"room:1            ann           joined (private) {"n":"Ann"}"#)
                == true, "\(lines)")
        let json = await run(["tail", "--presence", "--json", "--log", log.path], commands: commands)
        #expect(
            json.output.contains(
                #""op":"PRESENCE","event":"left","topic":"room:1","private":false,"key":"ann","ref":"r1","meta":"{\"n\":\"Ann\"}"}"#
            ),
            "\(json.output)")
    }

    @Test func `row tells the life of a row`() async throws {
        let result = try await onLog("row", "fullrep", "5", "--mask", "fullrep.email", "--tz", "+02:00")
        #expect(
            result.unmarked == """
                  OFFSET  TIME (+02:00)            LSN            XID  OP  CHANGED
                      12  2026-11-21 12:04:51.703  0/153EF78      741  I   email: *** MARK, body: "call back", deleted_at: null
                      13  2026-11-21 12:04:51.704  0/153F018      742  U   body: "call back"→"called"
                      14  2026-11-21 12:04:51.708  0/153F0B8      743  U   deleted_at: null→"2026-03-01T10:20:30.5+00:00"
                      15  2026-11-21 12:04:51.709  0/153F1A0      744  U   id: 5→6
                ──── its key was 5 and is now 6; both are followed ────
                      16  2026-11-21 12:04:51.710  0/153F228      745  D   (row removed) email: *** MARK, body: "called", deleted_at: "2026-03-01T10:20:30.5+00:00"
                5 versions; first seen at @12; the log holds 2026-11-21 12:04:51.711 … now, from @12 on.
                """ + "\n")
        #expect(try await onLog("row", "fullrep", "99").exitCode == .notFound)
    }

    @Test func `row says of a value that it is none of the column's type`() async throws {
        for words in [["abc"], ["1.5"], [""], ["id=abc"]] {
            let result = try await onLog("row", "fullrep", words[0])
            let value = words[0].split(separator: "=").last.map(String.init) ?? ""
            #expect(result.exitCode == .usage)
            #expect(
                result.errors.contains("KEY \(value): id of public.fullrep must be a whole number"),
                "\(result.errors)")
        }
        #expect(try await onLog("row", "fullrep", "body=abc").exitCode == .notFound)
    }

    /// Returns a log of a table that was renamed between two changes of a row.
    private func renamedLog() throws -> TemporaryLog {
        var lines = [
            #"{"type":"header","format":"tidewire-log","version":1,"source":"7","epoch":"7dfdd7af39bc2da8","offset":0,"lsn":"0/0"}"#
        ]
        for (index, name) in ["orders", "old orders"].enumerated() {
            let columns = [
                Column(name: "id", typeOID: 23, typeName: "int4", isIdentity: true, isPrimaryKey: true),
                Column(name: "state", typeOID: 25, typeName: "text", isIdentity: false, isPrimaryKey: false),
            ]
            var writer = ByteWriter()
            RelationCodec.encode(
                Relation(oid: 16_406, schema: "public", name: name, identity: .primaryKey, columns: columns),
                to: &writer)
            let fingerprint = Hex.text(RelationCodec.fingerprint(of: writer.bytes))
            let lsn = "\"0/\(index + 1)00\""
            let time = "\"2026-11-21T10:04:5\(index).000000Z\""
            lines.append(
                #"{"type":"relation","relation":"\#(fingerprint)","oid":16406,"schema":"public","table":"\#(name)","replica_identity":"d","columns":[{"name":"id","type":"int4","type_oid":23,"type_modifier":-1,"identity":true,"primary_key":true},{"name":"state","type":"text","type_oid":25,"type_modifier":-1,"identity":false,"primary_key":false}]}"#
            )
            lines.append(
                #"{"type":"transaction","offset":\#(index),"changes":1,"xid":74\#(index),"commit_lsn":\#(lsn),"end_lsn":\#(lsn),"commit_time":\#(time),"first_index":0,"continued":false,"lsn":\#(lsn),"time":\#(time)}"#
            )
            let operation = index == 0 ? "INSERT" : "UPDATE"
            lines.append(
                #"{"type":"change","offset":\#(index),"op":"\#(operation)","relation":"\#(fingerprint)","new":{"id":"5","state":"s\#(index)"}}"#
            )
        }
        lines.append(#"{"type":"end","offset":2,"lines":8}"#)
        return try TemporaryLog(lines.joined(separator: "\n"))
    }

    @Test(arguments: ["orders", "\"old orders\""]) func `row tells what its table was called`(name: String) async throws
    {
        let log = try renamedLog()
        defer { log.remove() }
        let result = await run(["row", name, "5", "--log", log.path], commands: commands)
        #expect(
            result.output.split(separator: "\n").dropFirst().prefix(3).map(String.init) == [
                "       0  2026-11-21 10:04:50.000  0/100          740  I   state: \"s0\"",
                "──── its table was public.orders until here and is public.\"old orders\" from @1 on ────",
                "       1  2026-11-21 10:04:51.000  0/200          741  U   state: \"s0\"→\"s1\"",
            ], "\(result.output)")
        #expect(result.output.contains("2 versions; first seen at @0"))
    }

    @Test func `tx tells of a whole transaction`() async throws {
        for name in ["742", "xid:742", "0/153F018", "lsn:0/153F048"] {
            let result = try await onLog("tx", name)
            #expect(
                result.output == """
                    transaction 742, 2026-11-21 10:04:51.704 UTC, 1 change, commit LSN 0/153F018 … 0/153F048, epoch 7dfdd7af39bc2da8
                      OFFSET  TIME (UTC)               LSN            XID  OP  TABLE             KEY           CHANGED
                          13  2026-11-21 10:04:51.704  0/153F018      742  U   public.fullrep    5             body: "call back"→"called"
                    """ + "\n")
        }
        #expect(try await onLog("tx", "9").exitCode == .notFound)
    }

    /// Checks LSNs inside a commit record. The transaction commits at 0/153F018 and ends at 0/153F048; the next one
    /// begins at 0/153F0B8.
    @Test func `tx has no answer to an LSN inside of a commit record`() async throws {
        for name in ["0/153F018", "0/153F048"] {
            #expect(try await onLog("tx", name).output.hasPrefix("transaction 742, "))
        }
        for name in ["0/153F019", "0/153F020", "0/153F047", "0/153F049"] {
            let result = try await onLog("tx", name)
            #expect(result.exitCode == .notFound && result.output.isEmpty, "\(name): \(result.output)")
            #expect(result.errors.contains("no transaction at \(name)"), "\(result.errors)")
        }
    }

    @Test func `row from before what is kept says so by its exit code`() async throws {
        for from in ["@3", "2026-01-01"] {
            let result = try await onLog("row", "fullrep", "5", "--from", from)
            #expect(result.exitCode == .outsideRetention && result.exitCode.rawValue == 3, "\(from): \(result.errors)")
            #expect(result.output.isEmpty && result.errors.contains("the oldest kept is @12"), "\(result.errors)")
        }
        // Questions about changes that the log still has work as usual. A row that is not found gives another error.
        #expect(try await onLog("row", "fullrep", "5", "--from", "@12").exitCode == .ok)
        #expect(try await onLog("row", "fullrep", "999", "--from", "@12").exitCode == .notFound)
    }

    @Test func `asof shows the rows that there were`() async throws {
        let result = try await onLog("asof", "fullrep", "--to", "@14", "--mask", "email")
        #expect(
            result.unmarked == """
                KNOWN BY  KEY           ROW
                @13       5             id: 5, email: "*** MARK", body: "called", deleted_at: null
                1 row; rows that no change touched since @12 are missing (see 'tidewire signal backfill').

                """, "\(result.output)\(result.errors)")
        let json = try await onLog("asof", "fullrep", "--to", "@13", "--json", "--unmask", "email")
        #expect(
            json.output
                == #"{"offset":12,"witness":"change","key":"5","record":{"id":5,"email":"me@x","body":"call back","deleted_at":null}}"#
                + "\n")
        #expect(try await onLog("asof", "fulrep").errors.contains("did you mean public.fullrep?"))
    }

    @Test func `stats counts what fills the log`() async throws {
        let result = try await onLog("stats", "--top", "1")
        #expect(result.exitCode == .ok && result.errors.isEmpty)
        #expect(
            result.output == """
                TABLE           CHANGES  INSERT  UPDATE  DELETE  OTHER  TX   SIZE
                public.fullrep        5       1       3       1      0   5  350 B
                and 1 more (--top 2 shows all)

                7 changes in 7 transactions, 366 B of rows, @12 to @18, committed 2026-11-21 10:04:51.703 to 2026-11-21 10:04:51.711 UTC

                Largest transactions
                XID  TIME (UTC)               LSN        OFFSET  CHANGES   SIZE
                744  2026-11-21 10:04:51.709  0/153F1A0      15        1  114 B

                Largest changes
                OFFSET  TIME (UTC)               XID  OP  TABLE            SIZE
                    15  2026-11-21 10:04:51.709  744  U   public.fullrep  114 B
                """ + "\n", "\(result.output)")
        let operations = try await onLog("stats", "--by", "operation", "--top", "9", "--json", "--from", "@13").output
        let lines = operations.split(separator: "\n")
        #expect(lines.count { $0.contains(#""kind":"group""#) } == 3, "\(operations)")
        #expect(
            lines[0].hasPrefix(#"{"kind":"group","operation":"UPDATE","changes":3,"insert":0,"update":3,"delete":0,"#))
        #expect(lines.last?.hasPrefix(#"{"kind":"total","first_offset":13,"last_offset":18,"#) == true)
        #expect(!operations.contains("me@x") && !operations.contains("call back"))
        let nothing = try await onLog("stats", "--table", "fullrep", "--op", "T")
        #expect(nothing.exitCode == .notFound && nothing.output.contains("no changes in this window"))
    }

    @Test func `rows come as comma-separated values and as tables of documents`() async throws {
        let rows = try await onLog("row", "fullrep", "5", "-o", "csv", "--unmask", "email", width: 60)
        #expect(rows.exitCode == .ok)
        let lines = rows.output.split(separator: "\n")
        #expect(lines.count == 6 && lines[0] == "OFFSET,TIME (UTC),LSN,XID,OP,CHANGED", "\(rows.output)")
        #expect(
            lines[1]
                == #"12,2026-11-21 10:04:51.703,0/153EF78,741,I,"email: ""me@x"", body: ""call back"", deleted_at: null""#
        )
        // Facts that are not rows go to standard error.
        #expect(
            rows.errors.contains("its key was 5 and is now 6") && rows.errors.contains("5 versions; first seen at @12"))
        for words in [
            ["tail"], ["tx", "742"], ["asof", "fullrep", "--to", "@14"], ["stats"], ["log", "info"], ["log", "verify"],
        ] {
            let csv = await runOnLog(words + ["-o", "csv"])
            let widths = Set(csv.output.split(separator: "\n").map { $0.filter { $0 == "," }.count > 1 })
            #expect(csv.exitCode == .ok && widths == [true] && !csv.output.contains("──"), "\(words): \(csv.output)")
            let document = await runOnLog(words + ["--output", "md"])
            #expect(
                document.output.hasPrefix("| ") && document.output.contains(" | ---"), "\(words): \(document.output)")
        }
        #expect(await runOnLog(["tail", "-o", "json"]).unmarked == runOnLog(["tail", "--json"]).unmarked)
        #expect(await runOnLog(["tail", "-o", "xml"]).errors.contains("--output xml: expected table, json, csv or md"))
        #expect(await runOnLog(["tail", "-o", "csv", "--json"]).exitCode == .usage)
    }

    private func runOnLog(_ words: [String]) async -> Run {
        guard let directory = try? TemporaryLog() else { return Run(exitCode: .notFound, output: "", errors: "") }
        defer { directory.remove() }
        return await run(words + ["--log", directory.path], commands: commands)
    }

    @Test func `log verify and export agree with the import`() async throws {
        #expect(try await onLog("log", "verify").output.hasPrefix("every checksum is correct: 2 segments, 7 changes"))
        #expect(try await onLog("log", "export", "--unmask", "*").output == export + "\n")
        #expect(try await onLog("log", "info", "--json").output.contains(#""first_offset":12,"end_offset":19"#))
    }

    @Test(
        arguments: [
            (["tail", "--from", "yesterday"], ExitCode.usage, "--from yesterday: expected a time"),
            (["tail", "--to", "5"], .usage, "--to 5: expected a time"),
            (["tail", "--op", "X"], .usage, "--op X: expected I, U, D, T, M"),
            (["tail", "--where", "x"], .usage, "--where x: expected column=value"),
            (["tail", "--table", "a.b.c"], .usage, "--table a.b.c: expected table"),
            (["tail", "--table", "fulrep"], .notFound, "did you mean public.fullrep?"),
            (["tail", "--mask", "emial"], .usage, "did you mean email?"),
            (["tail", "--where", "bdy=x"], .usage, "did you mean body?"),
            (["tail", "--from", "@3"], .outsideRetention, "the oldest kept is @12"),
            (["tail", "--from", "2026-01-01"], .outsideRetention, "the oldest kept is @12"),
            (["row", "fullrep", "1", "--from", "2026-01-01"], .outsideRetention, "the oldest kept is @12"),
            (["row", "gone", "1", "--from", "@3"], .outsideRetention, "the oldest kept is @12"),
            (["tail", "--from", "2100-01-01"], .notFound, "no changes found"),
            (["tail", "--from", "xid:3"], .notFound, "no transaction 3"),
            (["tail", "-f", "--to", "now"], .usage, "--follow has no end"),
            (["tail", "--tz", "Mars"], .usage, "--tz Mars: expected UTC"),
            (["row", "fullrep"], .usage, "KEY is missing"),
            (["row", "fullrep", "1", "2"], .usage, "has one column (id)"),
            (["tx", "-1h"], .usage, "expected a transaction"),
            (["stats", "--by", "week"], .usage, "--by week: expected one of table, operation"),
            (["stats", "--top", "-1"], .usage, "--top: expected a whole number from 0"),
            (["stats", "--table", "fulrep"], .notFound, "did you mean public.fullrep?"),
            (["stats", "--from", "@3"], .outsideRetention, "the oldest kept is @12"),
        ] as [([String], ExitCode, String)])
    func `says what is wrong`(words: [String], exitCode: ExitCode, message: String) async throws {
        let directory = try TemporaryLog()
        defer { directory.remove() }
        let result = await run(words + ["--log", directory.path], commands: commands)
        #expect(result.exitCode == exitCode)
        #expect(result.errors.contains(message), "\(result.errors)")
    }

    @Test func `says where there is no log, and no database`() async {
        let result = await run(["tail", "--log", "/nowhere/log"], commands: commands)
        #expect(result.exitCode == .unreachable)
        #expect(result.errors.hasPrefix("tidewire: there is no event log in /nowhere/log\n"))
        let slot = await run(
            ["slot", "status", "--database-url", "postgres://u@127.0.0.1:1/d"], commands: commands)
        #expect(slot.exitCode == .unreachable)
    }

    /// Checks the width of manuals, except for examples of commands, which stay on one line.
    @Test func `keeps every manual within eighty columns`() async {
        for words in [
            ["tail"], ["row"], ["tx"], ["log"], ["log", "info"], ["log", "verify"], ["log", "export"],
            ["log", "import"], ["log", "accept-loss"], ["slot", "status"], ["slot", "drop"],
        ] {
            let manual = await run(["help"] + words, commands: commands).output
            for line in manual.split(separator: "\n") where !line.contains("tidewire ") {
                #expect(line.count <= 80, "\(line)")
            }
        }
    }
}
