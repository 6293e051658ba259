import Change
import Foundation
import Glibc
import History
import System
import TestSupport
import Testing

@testable import Console
@testable import tidewire

private let commands: [any Command] = [
    TailCommand(), RowCommand(), TransactionCommand(), StatisticsCommand(), AsOfCommand(), EventCommand(), WhoCommand(),
    UserCommand(), SessionCommand(), LogCommand(), BundleCommand(), OpenCommand(),
]

/// Bundle of a log that has secrets, in a directory with nothing else.
private final class BundleStage {
    let stage: SecretStage
    let root = "/tmp/tidewire-test-bundle-\(UInt64.random(in: 0 ... .max))"
    var bundle: String { root + "/incident.bundle" }

    init() throws {
        stage = try SecretStage()
        try Directories.make(root)
    }

    deinit {
        stage.log.remove()
        if let directory = try? DiskDirectory(root) {
            for name in (try? directory.names()) ?? [] { try? directory.remove(name) }
        }
        rmdir(root)
    }

    /// Makes the bundle with a secret in every setting that can hold one.
    func make(_ words: String...) async -> Run {
        let secret = SecretStage.secret
        return await run(
            ["bundle", bundle, "--log", stage.log.path] + words, commands: commands,
            environment: [
                "TIDEWIRE_DATABASE_URL": "postgres://me:\(secret)@127.0.0.1/d", "TIDEWIRE_JWT_SECRET": secret,
                "TIDEWIRE_POLICY_DATABASE_URL": "host=127.0.0.1 user=p password=\(secret) dbname=d",
                "TIDEWIRE_API_KEYS": "sb_secret_\(secret) = anon", "TIDEWIRE_OPERATOR_JWT_SECRET": secret,
                "TIDEWIRE_JWKS": #"{"keys":[{"kty":"oct","k":"\#(secret)"}]}"#, "TIDEWIRE_PROJECT_KEY": secret,
                "TIDEWIRE_METRICS_JWT_SECRET": secret, "TIDEWIRE_OPERATOR_TOKEN_BLOCKLIST": secret,
                "TIDEWIRE_JWT_CLAIM_VALIDATORS": #"{"iss":"x"}"#, "TIDEWIRE_MASK_RULES": "rules",
                "TIDEWIRE_PUBLICATION": "shown_here",
            ], files: ["rules": SecretStage.rules])
    }

    /// Runs a command as on another computer: without settings or a database, and with the bundle as its only log.
    func there(_ words: [String]) async -> Run {
        await run(words + ["--log", bundle], commands: commands)
    }

    /// Content of the log's files in the bundle.
    var log: String {
        get throws {
            let directory = try LogBundle(bundle).directory
            return try directory.names().map { name in
                String(decoding: try directory.open(name, for: .reading).contents(atMost: 64 << 20), as: UTF8.self)
            }.joined()
        }
    }

    var bytes: String {
        get throws {
            String(
                decoding: try DiskDirectory(root).open("incident.bundle", for: .reading).contents(atMost: 64 << 20),
                as: UTF8.self)
        }
    }
}

@Suite(.within(minutes: 5)) struct BundleTests {
    @Test func `a bundle says what its log says, without what is masked`() async throws {
        let stage = try BundleStage()
        let made = await stage.make("--note", "orders vanish")
        #expect(made.exitCode == .ok && made.output.contains("9 changes"), "\(made)")
        #expect(try !stage.bytes.contains(SecretStage.secret) && !stage.log.contains(SecretStage.secret))
        #expect(try stage.bytes.contains("shown_here") && stage.log.contains("people"))
        #expect(try DiskDirectory(stage.root).names() == ["incident.bundle"])
        for words in MaskingCommandTests.readings.filter({ $0 != ["stats"] }).flatMap({ [$0, $0 + ["--json"]] }) {
            let (here, there) = (await stage.stage.run(words), await stage.there(words))
            #expect(there.exitCode == here.exitCode && there.errors.isEmpty, "\(words): \(there.errors)")
            // A mask rule of the first computer hides the diagnosis. In the bundle its mark is a text, so the command
            // prints it in quotes.
            #expect(there.unmarked.withoutQuotes == here.unmarked.withoutQuotes, "\(words)")
        }
        let verified = await stage.there(["log", "verify"])
        #expect(verified.exitCode == .ok, "\(verified)")
    }

    @Test func `open says what is in it`() async throws {
        let stage = try BundleStage()
        _ = await stage.make("--note", "orders vanish", "--from", "@2", "--to", "@5", "--unmask", "people.email")
        let result = await run(["open", stage.bundle, "--settings"], commands: commands)
        #expect(result.exitCode == .ok, "\(result.errors)")
        let lines = result.output.split(separator: "\n")
        #expect(
            lines[0].hasPrefix("\(stage.bundle), made 20") && lines[0].hasSuffix(": orders vanish"), "\(result.output)")
        #expect(lines[1].hasPrefix("3 changes, @2 … @5, from 2026-11-21 10:04:52.000"), "\(result.output)")
        #expect(
            lines[2].hasSuffix("but not people.email")
                && result.output.contains(#""name":"publication","value":"shown_here""#))
        #expect(!result.output.contains(SecretStage.secret))
        let before = await stage.there(["tail", "--from", "@1"])
        #expect(before.exitCode == .outsideRetention, "\(before)")
        // The log's audit file records that a bundle with readable values was made. Another audit file, beside the
        // bundle, records further unmasking.
        #expect(await stage.stage.run(["log", "audit"]).output.contains("tidewire bundle"))
        #expect(await stage.there(["tail", "--unmask", "*"]).exitCode == .ok)
        let without = await stage.there(["tail", "--unmask", "diagnosis"])
        #expect(without.exitCode == .usage && without.errors.contains("this bundle has only marks for these values"))
        #expect(
            try DiskDirectory(stage.root).names().sorted() == [
                "audit.lock", "incident.bundle", "incident.bundle.audit",
            ])
        #expect(await stage.there(["log", "audit"]).output.contains("tidewire tail"))
    }

    @Test func `who was joined when the window begins is in it`() async throws {
        let stage = try BundleStage()
        // The join is before the window.
        #expect(await stage.make("--from", "@8").exitCode == .ok)
        let who = await stage.there(["who", "8", "--recorded"])
        #expect(who.exitCode == .ok && who.output.contains(SecretStage.user), "\(who)")
        #expect(await stage.there(["session"]).output.contains("stands"))
    }

    @Test func `what is no bundle, or not whole, is none`() async throws {
        let stage = try BundleStage()
        _ = await stage.make()
        #expect(await stage.make().errors.contains("there is such a file already"))
        let directory = try DiskDirectory(stage.root)
        let file = try directory.open("incident.bundle", for: .writing)
        #expect(await stage.there(["log", "verify", "--repair"]).exitCode != .ok)
        let size = try file.size()
        for length in [size - 1024, 4096, 512, 100, 0] {
            try file.truncate(to: length)
            let result = await stage.there(["tail"])
            #expect(
                result.exitCode == .unreachable && result.errors.contains("is not a bundle"), "\(length): \(result)")
        }
        #expect(await stage.there(["log", "accept-loss", "--yes"]).exitCode == .unreachable)
    }

    /// Checks that other programs can read a bundle.
    @Test func `tar lists it`() async throws {
        let stage = try BundleStage()
        _ = await stage.make()
        let listing = stage.root + "/list"
        #expect(try ChildProcess(["/bin/sh", "-c", "tar tf \(stage.bundle)"], output: listing).wait() == .exited(0))
        let list = try DiskDirectory(stage.root).open("list", for: .reading).contents(atMost: 1 << 20)
        let names = String(decoding: list, as: UTF8.self).split(separator: "\n").map(String.init)
        #expect(names.prefix(3) == ["bundle.json", "configuration.ndjson", "mask.rules"], "\(names)")
        #expect(names.contains("log/0000000001.segment.zst"))
    }

    /// Checks a bundle whose log is not compressed: its answers are those of a new bundle of the same log.
    @Test func `a bundle of version 1 is read like a new one`() async throws {
        let place = TemporaryDirectory.make("bundles")
        let fixtures = String(#filePath.dropLast("BundleTests.swift".count)) + "Fixtures"
        let old = fixtures + "/bundle-1.0.bundle"
        let new = place + "/new.bundle"
        let made = await run(
            ["bundle", new, "--log", fixtures + "/log-0.1", "--policies"], commands: commands)
        #expect(made.exitCode == .ok, "\(made.errors)")
        for words in [
            ["tail", "--json", "--presence", "--from", "oldest"], ["row", "notes", "1"], ["who", "5"],
            ["asof", "notes"],
            ["session"], ["stats", "--json"], ["log", "verify"], ["log", "export"],
        ] {
            let (one, other) = (
                await run(words + ["--log", old], commands: commands),
                await run(words + ["--log", new], commands: commands)
            )
            #expect(one.exitCode == .ok && other.exitCode == .ok, "\(words): \(one.errors) \(other.errors)")
            #expect(
                one.unmarked.replacing(old, with: "") == other.unmarked.replacing(new, with: ""), "\(words)")
        }
        #expect(await run(["open", old], commands: commands).output.contains("a bundle of 1.0"))
    }

    @Test func `rows of an app take a quarter of their room or less`() async throws {
        let place = TemporaryDirectory.make("rows")
        let log = try TypicalRows.log(changes: 30_000, in: place + "/log")
        let made = await run(["bundle", place + "/a.bundle", "--log", place + "/log"], commands: commands)
        #expect(made.exitCode == .ok, "\(made.errors)")
        let size = try DiskDirectory(place).open("a.bundle", for: .reading).size()
        let whole = try log.names().filter { $0.hasSuffix(".segment") }.reduce(0) {
            $0 + (try log.open($1, for: .reading).size())
        }
        #expect(size * 4 <= whole, "\(whole) bytes became \(size)")
        let row = await run(["row", "orders", "17", "--log", place + "/a.bundle"], commands: commands)
        #expect(row.exitCode == .ok && row.output.contains("note: "), "\(row)")
    }

    @Test func `a bundle that a later version made is refused by name`() async throws {
        let stage = try BundleStage()
        _ = await stage.make()
        let file = try DiskDirectory(stage.root).open("incident.bundle", for: .writing)
        var head = try file.bytes(at: 512, count: 512)
        let place = try #require(String(decoding: head, as: UTF8.self).range(of: #""version":2"#))
        let index = String(decoding: head, as: UTF8.self).utf8.distance(
            from: String(decoding: head, as: UTF8.self).startIndex, to: place.upperBound)
        head[index - 1] = UInt8(ascii: "9")
        try file.write(head.span.bytes, at: 512)
        let refused = await stage.there(["tail"])
        #expect(
            refused.exitCode == .unreachable
                && refused.errors.contains("a bundle of version 9, which a newer tidewire"),
            "\(refused)")
    }
}

/// Log with the rows of an ordinary app: some ids, times, states and short texts.
private enum TypicalRows {
    static func log(changes: Int, in path: String) throws -> DiskDirectory {
        let orders = Relation(
            oid: 16_600, schema: "public", name: "orders", identity: .full,
            columns: [
                ("id", "int8", 20, true), ("customer_id", "uuid", 2950, false), ("state", "text", 25, false),
                ("total", "numeric", 1700, false), ("note", "text", 25, false),
                ("created_at", "timestamptz", 1184, false),
                ("items", "jsonb", 3802, false),
            ].map { name, type, oid, isKey in
                Column(name: name, typeOID: oid, typeName: type, isIdentity: true, isPrimaryKey: isKey)
            })
        var random = SeededRandom(seed: 5)
        var lines = SecretStage.Lines()
        lines.add(orders)
        var last: [String: String?] = [:]
        let states = ["new", "paid", "packed", "sent", "returned"]
        for number in 0..<changes {
            let customer = String(random.next() % 2000 + 1_000_000, radix: 16)
            let words = (0..<6).map { _ in
                ["please", "ring", "twice", "leave", "it", "at", "the", "door", "thank", "you"][Int(random.next() % 10)]
            }
            let row: [String: String?] = [
                "id": "\(number / 3)", "customer_id": "7f3c2b1e-0c5d-4f6e-8a52-000000\(customer)",
                "state": states[Int(random.next() % 5)],
                "total": "\(random.next() % 900).\(random.next() % 90 + 10)",
                "note": words.joined(separator: " "),
                "created_at": "2026-11-21 10:04:\(random.next() % 50 + 10).\(random.next() % 900_000 + 100_000)+00",
                "items": #"[{"sku": "A-\(random.next() % 400)", "count": \(random.next() % 5 + 1)}]"#,
            ]
            let isNew = number % 3 == 0
            lines.add(isNew ? "INSERT" : "UPDATE", orders, old: isNew ? nil : last, new: row)
            last = row
        }
        let directory = try DiskDirectory(path, creating: true)
        let log = LogImport(into: directory, segmentBytes: 64 << 20)
        for line in lines.ended.split(separator: "\n") { try log.take(Array(line.utf8).span.bytes) }
        try log.finish()
        return directory
    }
}

extension String {
    fileprivate var withoutQuotes: String { filter { $0 != "\"" && $0 != "\\" && $0 != " " } }
}
