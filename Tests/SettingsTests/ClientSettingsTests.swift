import Auth
import Bytes
import Net
import TestSupport
import Testing

@testable import Settings

@Suite(.within(minutes: 5)) struct ClientSettingsTests {
    private func load(_ text: String) throws -> Configuration {
        try Configuration.load(surroundings: surroundings(files: ["./tidewire.conf": text]))
    }

    @Test func `takes a certificate only with its key`() throws {
        let tls = try load("tls_certificate = /c.pem\ntls_key = /k.pem").tls
        #expect(tls?.certificate == "/c.pem" && tls?.key == "/k.pem")
        #expect(
            complaints(files: ["./tidewire.conf": "tls_certificate = /c.pem"])
                == ["./tidewire.conf:1: tls_certificate is of no use without tls_key"])
        #expect(
            complaints(environment: ["TIDEWIRE_TLS_KEY": "/k.pem"])
                == ["environment TIDEWIRE_TLS_KEY: tls_key is of no use without tls_certificate"])
    }

    @Test func `understands how the loops work`() throws {
        let configuration = try load("loops = 3\nio = io_uring\ndeflate = on\nidle_timeout = 0")
        #expect(configuration.loops == 3)
        #expect(configuration.backend == .ring)
        #expect(configuration.compresses)
        #expect(configuration.idleTimeout == nil)
        #expect(try load("io = epoll").backend == .epoll)
        #expect(complaints(files: ["./tidewire.conf": "io = kqueue"]).count == 1)
    }

    @Test(arguments: [
        "loops = 257", "max_connections = 0", "max_channels_per_client = 0", "max_frame_size = 1kB",
        "max_frame_size = 65MB", "max_record_bytes = 64MB", "outbox_size = 1GB", "outbox_age = 0",
        "connect_error_backoff = 10s", "channel_error_backoff = 10s", "idle_timeout = 2d", "deflate = 6",
        "max_joins_per_second = -1", "max_payload_size = 64001", "client_presence_window = 0", "replay_limit = 0",
        "messages_retention_hours = 0", "max_request_body = 65MB", "presence_timeline = maybe",
    ])
    func `refuses what no limit allows`(line: String) {
        #expect(complaints(files: ["./tidewire.conf": line]).count == 1)
    }

    @Test(arguments: ["[]", "{", "iss", #"{"aud":["a"]}"#])
    func `refuses claims that are not plain values`(text: String) {
        let found = complaints(overrides: [.flag(Setting(\.claimExpectations), text)])
        #expect(
            found == [
                "--jwt-claim-validators: jwt_claim_validators: expected a JSON object of texts, numbers, booleans "
                    + "or null, such as {\"iss\": \"https://…\"}, not \"\(text)\""
            ])
    }
}

@Suite(.within(minutes: 5)) struct TokenKeysTests {
    private static let now: Int64 = 1_800_000_000

    private func keys(
        _ overrides: [SettingOverride], files: [String: String] = [:]
    ) throws(ConfigurationFailure) -> TokenKeys {
        let surroundings = surroundings(files: files)
        return try Configuration.load(overrides: overrides, surroundings: surroundings)
            .tokenKeys(surroundings: surroundings)
    }

    private func complaint(_ overrides: [SettingOverride], files: [String: String] = [:]) -> String? {
        do throws(ConfigurationFailure) {
            _ = try keys(overrides, files: files)
            return nil
        } catch {
            return error.description
        }
    }

    private func role(_ keys: TokenKeys, _ key: String) -> String? {
        let bytes = Array(key.utf8)
        return try? keys.clients.verify(bytes.span.bytes, at: Self.now).role.text
    }

    @Test func `recognises nobody by nothing`() throws {
        let keys = try keys([])
        #expect(!keys.canRecogniseAnyone)
        #expect(keys.metrics == nil)
        #expect(keys.notes.isEmpty)
        #expect(try self.keys([.flag(Setting(\.jwtSecret), "s")]).canRecogniseAnyone)
    }

    @Test func `a secret with fewer bytes than its signatures is short`() throws {
        let (short, long) = (String(repeating: "s", count: 31), String(repeating: "s", count: 32))
        let settings = [
            Setting(\.jwtSecret), Setting(\.operatorSecret), Setting(\.nextOperatorSecret), Setting(\.metricsSecret),
        ]
        for setting in settings {
            let wanted = [ShortSecret(setting: setting.name, byteCount: 31)]
            #expect(try self.keys([.flag(setting, short)]).shortSecrets == wanted)
            #expect(try self.keys([.flag(setting, long)]).shortSecrets.isEmpty)
        }
        #expect(try self.keys([.flag(Setting(\.metricsSecret), "s")]).metrics != nil)
    }

    @Test func `reads what opaque keys stand for, from the setting or a file`() throws {
        let inline = try keys([.flag(Setting(\.apiKeys), "sb_publishable_a = anon,sb_secret_b=service_role")])
        #expect(role(inline, "sb_publishable_a") == "anon")
        #expect(role(inline, "sb_secret_b") == "service_role")
        #expect(role(inline, "sb_secret_c") == nil)
        #expect(inline.canRecogniseAnyone)
        let text = "# keys\r\n\n  sb_publishable_a =  anon  # for apps\nsb_secret_b=service_role, \n"
        let filed = try keys([.flag(Setting(\.apiKeys), "/keys")], files: ["/keys": text])
        #expect(role(filed, "sb_publishable_a") == "anon")
        #expect(role(filed, "sb_secret_b") == "service_role")
    }

    @Test(arguments: [
        ("sb_a", "entry 1 is not KEY = ROLE or KEY = TOKEN, with a key that begins with sb_"),
        ("sb_a = ", "entry 1 is not KEY = ROLE or KEY = TOKEN, with a key that begins with sb_"),
        ("sb_a = x,hunter2 = y", "entry 2 is not KEY = ROLE or KEY = TOKEN, with a key that begins with sb_"),
        ("sb_a = x y", "entry 1 is not KEY = ROLE or KEY = TOKEN, with a key that begins with sb_"),
        ("sb_a = x,sb_b = y,sb_a = z", "entry 3 names a key that was named before"),
    ])
    func `says which entry is wrong without repeating it`(text: String, message: String) {
        #expect(complaint([.flag(Setting(\.apiKeys), text)]) == "--api-keys: api_keys: \(message)")
        #expect(
            complaint([.flag(Setting(\.apiKeys), "/keys")], files: ["/keys": text])
                == "--api-keys: api_keys: /keys: \(message)")
    }

    @Test func `reads keys of tokens, from the setting or a file`() throws {
        let set = #"{"keys":[{"kty":"oct","kid":"a","k":"c2VjcmV0"},{"kty":"x","kid":"b"}]}"#
        for (text, files) in [(set, [:]), (" " + set, [:]), ("/set", ["/set": set])] {
            let keys = try keys([.flag(Setting(\.keySet), text)], files: files)
            #expect(keys.canRecogniseAnyone)
            #expect(keys.notes == ["key 2 (kid \"b\") is not used: its type x is not known"])
        }
    }

    @Test func `says what is wrong with a key set and where it was given`() {
        #expect(
            complaint([.flag(Setting(\.keySet), #"{"keys":[{"kty":"oct","kid":"a"}]}"#)])
                == "--jwks: jwks: key 1 (kid \"a\") of the key set: it has no \"k\"")
        #expect(
            complaint([.flag(Setting(\.keySet), "/set")], files: ["/set": "x"])
                == "--jwks: jwks: /set: the key set is not {\"keys\": [{…}, …]}: expected a value at byte 0")
        #expect(complaint([.flag(Setting(\.keySet), "/set")]) == "--jwks: jwks: /set: there is no such file")
        #expect(complaint([.flag(Setting(\.apiKeys), "/keys")]) == "--api-keys: api_keys: /keys: there is no such file")
    }

    @Test func `never shows a key, and shows the file that holds some`() throws {
        let secret = "hunter2"
        let configuration = try Configuration.load(
            overrides: [
                .flag(Setting(\.keySet), "{\"keys\":[\"\(secret)\"]}"), .flag(Setting(\.apiKeys), "sb_\(secret)=anon"),
                .flag(Setting(\.metricsSecret), secret),
            ], surroundings: surroundings())
        var printed = "\(configuration)"
        dump(configuration, to: &printed)
        printed += configuration.effective.map(\.shown).joined()
        #expect(!printed.contains(secret))
        let filed = try Configuration.load(
            overrides: [.flag(Setting(\.keySet), "/set.json")], surroundings: surroundings())
        #expect(filed.effective.first { $0.setting == Setting(\.keySet) }?.shown == "/set.json")
    }
}
