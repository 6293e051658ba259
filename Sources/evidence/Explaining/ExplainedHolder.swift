import Bytes
import Change
@_spi(Judging) import History

/// A role with claims, as a token would carry them.
public struct ExplainedHolder: Sendable {
    /// Claims as one JSON object.
    public let claims: String
    public let role: String
    /// Value of the claim `sub`, if present.
    public let subject: String?
    /// Display name: the e-mail address, or else the id.
    public let name: String
    /// Name of the claim from which the display name is taken.
    private let nameClaim: String

    /// Creates a holder. `claims` is the payload of a token; nil builds one from role and subject. Role and subject add
    /// what the claims lack, and must not contradict them.
    public init(claims: String?, role: String?, subject: String?) throws(ExplainFailure) {
        let found = try ExplainedHolder.read(claims ?? "{}")
        let known = try ExplainedHolder.only(found["role"], role, "role")
        let sub = try ExplainedHolder.only(found["sub"], subject, "sub")
        guard let known, !known.isEmpty else {
            throw .badClaims("no role is given: neither in the claims nor by --role")
        }
        var added: [String] = []
        if found["role"] == nil { added.append("\"role\":" + ExplainedHolder.quoted(known)) }
        if let sub, found["sub"] == nil { added.append("\"sub\":" + ExplainedHolder.quoted(sub)) }
        self.claims = ExplainedHolder.adding(added, to: claims ?? "{}", isEmpty: found.isEmpty)
        self.role = known
        self.subject = sub
        name = found["email"] ?? sub ?? "a user without sub"
        nameClaim = found["email"] == nil ? "sub" : "email"
    }

    /// Creates the holder from the ledger's note of a joined channel.
    public init(_ recorded: RecordedNote) throws(ExplainFailure) {
        let claims = try Self.known(recorded.whole.claims).claims
        try self.init(
            claims: claims.isEmpty ? "{}" : claims, role: String(decoding: recorded.whole.role, as: UTF8.self),
            subject: nil)
    }

    /// Returns the names of the claims with which policies could not be evaluated: the ledger does not keep them, or a
    /// bundle has masked them.
    public static func unknownClaims(of recorded: RecordedNote) -> [String] {
        let others = String(decoding: recorded.note.otherClaims, as: UTF8.self).split(separator: ",").map(String.init)
        return others + ((try? known(recorded.whole.claims).masked) ?? [])
    }

    /// Returns the claims whose values are known, as JSON, and the names of the claims whose values a bundle has
    /// replaced by mask marks.
    private static func known(_ claims: [UInt8]) throws(ExplainFailure) -> (claims: String, masked: [String]) {
        let text = String(decoding: claims, as: UTF8.self)
        guard text.contains(MaskMark.sign) else { return (text, []) }
        var (kept, masked): ([String], [String]) = ([], [])
        do throws(ByteError) {
            var scanner = JSONScanner(claims.rawBytes, maximumDepth: JSONScanner.deepest)
            guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
            while try scanner.next() == .name {
                let (name, before) = (scanner.text, scanner.offset)
                try scanner.skip(try scanner.next())
                let value = String(decoding: claims[before..<scanner.offset], as: UTF8.self)
                if value.contains(/"\*\*\* [0-9a-f]{16}"/) {
                    masked.append(name)
                } else {
                    kept.append(quoted(name) + ":" + value)
                }
            }
        } catch {
            throw .badClaims("the claims are not one JSON object: \(error)")
        }
        return ("{" + kept.joined(separator: ",") + "}", masked)
    }

    /// Returns the display name in masked form.
    public func name(shownBy masking: Masking) -> String {
        masking.masks(nameClaim, of: [TableName]()) ? masking.mark(Array(name.utf8)) : name
    }

    func name(_ discretion: Discretion) -> String { discretion.claim(name, named: nameClaim) }

    private static func only(_ found: String?, _ given: String?, _ name: String) throws(ExplainFailure) -> String? {
        guard let found, let given, found != given else { return found ?? given }
        throw .badClaims("the claims have another \(name) than --\(name)")
    }

    /// Returns the members of the claims with a string value. A member with any other value has an empty string.
    private static func read(_ claims: String) throws(ExplainFailure) -> [String: String] {
        var members: [String: String] = [:]
        let bytes = Array(claims.utf8)
        do throws(ByteError) {
            var scanner = JSONScanner(bytes.rawBytes, maximumDepth: JSONScanner.deepest)
            guard try scanner.next() == .beginObject else { throw ByteError(expected: "an object", offset: 0) }
            while try scanner.next() == .name {
                let name = scanner.text
                let value = try scanner.next()
                members[name] = value == .string ? scanner.text : ""
                try scanner.skip(value)
            }
            _ = try scanner.next()
        } catch {
            throw .badClaims("the claims are not one JSON object: \(error)")
        }
        return members
    }

    private static func adding(_ members: [String], to claims: String, isEmpty: Bool) -> String {
        guard !members.isEmpty, let brace = claims.firstIndex(of: "{") else { return claims }
        return "{" + members.joined(separator: ",") + (isEmpty ? "" : ",") + claims[claims.index(after: brace)...]
    }

    private static func quoted(_ text: String) -> String {
        var writer = ByteWriter(capacity: text.utf8.count + 2)
        JSONText.appendString(text, to: &writer)
        return writer.bytes.text
    }
}
