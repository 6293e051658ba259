import Auth
import Bytes
import Crypto
import Diagnostics

/// Keys by which the hub recognizes clients and operators, from the settings and the files that they name. Making new
/// keys reads the files again.
public struct TokenKeys: Sendable {
    public let clients: TokenVerifier
    /// Verifier of tokens for the metrics; nil if no token is needed.
    public let metrics: TokenVerifier?
    /// Gate for the metrics, which also refuses tokens on the blocklist; nil if no token is needed.
    public let metricsGate: OperatorGate?
    public let operators: OperatorGate
    /// Key with which the hub signs the cookies of the web console. It is derived from the operators' secrets, so that
    /// other secrets end all sessions, and is random without such a secret.
    public let consoleKey: [UInt8]
    /// Notes for the log about keys that the hub does not use, with reasons.
    public let notes: [String]
    /// Secrets that are shorter than the signatures made with them, with their settings.
    public let shortSecrets: [ShortSecret]
    /// True if at least one key is configured, so that a client can connect.
    public let canRecogniseAnyone: Bool
}

/// Secret that is so short that anyone with a token signed with it could find it by trying.
public struct ShortSecret: Sendable, Equatable {
    public let setting: String
    public let byteCount: Int

    /// Minimum size of a secret in bytes. RFC 7518 §3.2 requires the size of the hash, which is 32 bytes for HS256.
    public static let soundBytes = 32
}

extension Configuration {
    private var shortSecrets: [ShortSecret] {
        let secrets: [(Setting, Secret?)] = [
            (Setting(\.jwtSecret), self.jwtSecret), (Setting(\.operatorSecret), self.operatorSecret),
            (Setting(\.nextOperatorSecret), self.nextOperatorSecret), (Setting(\.metricsSecret), self.metricsSecret),
        ]
        return secrets.compactMap { setting, secret in
            guard let count = secret?.revealed.utf8.count, count < ShortSecret.soundBytes else { return nil }
            return ShortSecret(setting: setting.name, byteCount: count)
        }
    }

    /// Reads the files that the settings name, and checks every key.
    public func tokenKeys(
        surroundings: ConfigurationSurroundings = .ofThisProcess
    ) throws(ConfigurationFailure)
        -> TokenKeys
    {
        let keys = try readKeySet(surroundings)
        let opaqueKeys = try readOpaqueKeys(surroundings)
        return TokenKeys(
            clients: TokenVerifier(
                secret: self.jwtSecret?.revealed, keys: keys, expectations: self.claimExpectations,
                opaqueKeys: opaqueKeys,
                maximumBytes: Limits.maximumTokenBytes),
            metrics: self.metricsSecret.map {
                TokenVerifier(secret: $0.revealed, maximumBytes: Limits.maximumTokenBytes)
            },
            metricsGate: self.metricsSecret.map {
                // A scraper's token is written into a file once, so it need not have an expiry.
                OperatorGate([$0], within: nil, withdrawn: self.metricsBlocklist, clients: nil)
            },
            operators: OperatorGate(
                [self.operatorSecret, self.nextOperatorSecret].compactMap(\.self), withdrawn: self.operatorBlocklist,
                clients: self.jwtSecret,
                rule: OperatorRoleRule(
                    claim: self.operatorRoleClaim, withoutClaim: self.operatorDefaultRole.role)),
            consoleKey: consoleKey, notes: keys.notes, shortSecrets: shortSecrets,
            canRecogniseAnyone: self.jwtSecret != nil || keys.count > 0 || !opaqueKeys.isEmpty)
    }

    private var consoleKey: [UInt8] {
        let secrets = [self.operatorSecret, self.nextOperatorSecret].compactMap { $0?.revealed }
        guard !secrets.isEmpty else { return Secrets.randomBytes(SHA256.digestBytes) }
        let derived = secrets.map { secret in
            SHA256.authenticationCode(of: Array("tidewire console".utf8).span, key: Array(secret.utf8).span)
        }
        return SHA256.digest(of: Array(derived.joined()).span)
    }

    private func readKeySet(_ surroundings: ConfigurationSurroundings) throws(ConfigurationFailure) -> JWKSet {
        guard let keySet = self.keySet else { return .none }
        let bytes = try content(of: keySet, Setting(\.keySet), surroundings)
        do throws(JWKSetError) {
            // SAFETY: any byte is a valid UInt8, and the span lives for the call.
            return unsafe try JWKSet.parse(
                bytes.span.bytes, maximumBytes: Limits.maximumKeySetBytes, maximumKeys: Limits.maximumKeysInSet)
        } catch {
            throw failure(Setting(\.keySet), keySet, error.description)
        }
    }

    private func readOpaqueKeys(
        _ surroundings: ConfigurationSurroundings
    ) throws(ConfigurationFailure) -> [String: OpaqueKey] {
        guard let apiKeys = self.apiKeys else { return [:] }
        let bytes = try content(of: apiKeys, Setting(\.apiKeys), surroundings)
        guard let text = String(validating: bytes, as: UTF8.self) else {
            throw failure(Setting(\.apiKeys), apiKeys, "it is not UTF-8")
        }
        do throws(OpaqueKeyList.Mistake) {
            return try OpaqueKeyList.parse(text)
        } catch {
            throw failure(Setting(\.apiKeys), apiKeys, error.message)
        }
    }

    private func content(
        of source: InlineOrFile, _ setting: Setting, _ surroundings: ConfigurationSurroundings
    ) throws(ConfigurationFailure) -> [UInt8] {
        switch source {
        case .inline(let text): return Array(text.revealed.utf8)
        case .file(let path):
            switch surroundings.readFile(path) {
            case .bytes(let bytes): return bytes
            case .missing: throw failure(setting, source, "there is no such file")
            case .unreadable(let reason): throw failure(setting, source, "it cannot be read: \(reason)")
            }
        }
    }

    private func failure(_ setting: Setting, _ source: InlineOrFile, _ message: String) -> ConfigurationFailure {
        let which = if case .file(let path) = source { "\(setting.name): \(path): " } else { "\(setting.name): " }
        return ConfigurationFailure(
            problems: [.init(place: self.source(of: setting).description, message: which + message)])
    }
}
