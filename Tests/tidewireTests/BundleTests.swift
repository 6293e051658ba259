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
        #expect(try !stage.bytes.contains(SecretStage.secret))
        #expect(try stage.bytes.contains("shown_here"))
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
        #expect(names.contains("log/0000000001.segment"))
    }
}

extension String {
    fileprivate var withoutQuotes: String { filter { $0 != "\"" && $0 != "\\" && $0 != " " } }
}
