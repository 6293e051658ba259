import Bytes
import Crypto
import Diagnostics

/// Encryption of projects' secrets in the project file and in answers. An encrypted text begins with a fixed prefix.
struct ProjectSeal: Sendable {
    private static let beginning = "t1:"
    private let key: SealingKey

    init(_ secret: [UInt8]) {
        key = SealingKey(from: secret.span, for: "tidewire projects 1")
    }

    func seal(_ text: String, of id: String, _ field: String) -> String {
        let bytes = key.seal(Array(text.utf8).span, for: Self.place(id, field).span)
        let sealed = Self.beginning + Base64URL.encode(bytes.span)
        assert(open(sealed, of: id, field) == text, "a text that was sealed can be opened again")
        return sealed
    }

    /// Returns the plain text; nil if the text was not encrypted with this key for this project and field.
    func open(_ text: String, of id: String, _ field: String) -> String? {
        guard text.hasPrefix(Self.beginning),
            let sealed = Base64URL.decode(text.utf8.dropFirst(Self.beginning.utf8.count)),
            let opened = key.open(sealed.span, for: Self.place(id, field).span)
        else { return nil }
        return String(validating: opened, as: UTF8.self)
    }

    private static func place(_ id: String, _ field: String) -> [UInt8] { Array("\(id)/\(field)".utf8) }
}

// MARK: Whole records

extension ProjectRecord {
    /// Returns the record as the API shows it: without the password, and with other secrets encrypted.
    func told(_ seal: ProjectSeal) -> JSONValue {
        var members = JSONObject([("id", .string(id)), ("external_id", .string(externalID))])
        for name in Self.toldFields { members[name] = fields[name] ?? .null }
        let secret = ProjectField.all.first { $0.isSecret && members[$0.name] != nil }
        assert(secret == nil, "an answer has no secret field")
        members["inserted_at"] = .string(TimeText.write(insertedAt))
        members["extensions"] = .array(extensions.map { $0.told(seal, id) })
        return .object(members)
    }

    private static let toldFields = [
        "name", "max_concurrent_users", "max_channels_per_client", "max_events_per_second", "max_joins_per_second",
        "max_presence_events_per_second", "max_payload_size_in_kb", "max_bytes_per_second", "private_only", "suspend",
        "max_client_presence_events_per_window", "client_presence_window_ms", "presence_enabled",
        "broadcast_adapter", "migrations_ran", "feature_flags",
    ]

    /// Returns the record as the project file contains it, with secrets encrypted.
    func stored(_ seal: ProjectSeal) -> JSONValue {
        var members = JSONObject([("id", .string(id)), ("external_id", .string(externalID))])
        for field in ProjectField.all {
            guard let value = fields[field.name] else { continue }
            let text = value.string ?? value.text
            members[field.name] = field.isSecret ? .string(seal.seal(text, of: id, field.name)) : value
        }
        members["inserted_at"] = .number(Int(insertedAt))
        members["updated_at"] = .number(Int(updatedAt))
        members["extensions"] = .array(extensions.map { $0.stored(seal, id) })
        for (name, value) in unknown.members {
            assert(members[name] == nil, "an unknown member of a project replaces no known one")
            members[name] = value
        }
        return .object(members)
    }

    /// Creates a record from its form in the project file. Throws an error with a text if that is invalid.
    init(stored value: JSONValue, _ seal: ProjectSeal) throws(StoredProjectMistake) {
        guard var members = value.object, let id = members.take("id")?.string,
            let externalID = members.take("external_id")?.string, let insertedAt = members.take("inserted_at")?.integer,
            let updatedAt = members.take("updated_at")?.integer, let extensions = members.take("extensions")?.array
        else { throw StoredProjectMistake("a project has no id, external_id, inserted_at, updated_at or extensions") }
        var fields = JSONObject()
        for field in ProjectField.all {
            guard let value = members.take(field.name) else { continue }
            fields[field.name] = try Self.opened(value, field, of: id, seal)
        }
        var described: [ProjectExtension] = []
        for value in extensions { described.append(try ProjectExtension(stored: value, seal, id)) }
        self.init(
            id: id, externalID: externalID, insertedAt: Int64(insertedAt), updatedAt: Int64(updatedAt), fields: fields,
            extensions: described, unknown: members)
    }

    private static func opened(
        _ value: JSONValue, _ field: ProjectField, of id: String, _ seal: ProjectSeal
    ) throws(StoredProjectMistake) -> JSONValue {
        guard field.isSecret else { return try checked(value, field) }
        guard let text = value.string.flatMap({ seal.open($0, of: id, field.name) }) else {
            throw StoredProjectMistake("\(field.name) of a project cannot be decrypted")
        }
        guard case .keySet = field.kind else { return try checked(.string(text), field) }
        let keys = try? JSONValue.parse(
            Array(text.utf8), maximumDepth: Limits.maximumProjectDepth)
        return try checked(keys ?? .null, field)
    }

    private static func checked(
        _ value: JSONValue, _ field: ProjectField
    ) throws(StoredProjectMistake) -> JSONValue {
        guard let value = field.cast(value) else {
            throw StoredProjectMistake("\(field.name) of a project is not what it must be")
        }
        return value
    }
}

extension ProjectExtension {
    fileprivate func told(_ seal: ProjectSeal, _ id: String) -> JSONValue {
        var settings = sealedSettings(seal, id)
        settings["db_password"] = nil
        return .object(
            JSONObject([
                ("type", .string(type)), ("inserted_at", .string(TimeText.write(insertedAt))),
                ("updated_at", .string(TimeText.write(updatedAt))), ("settings", .object(settings)),
            ]))
    }

    fileprivate func stored(_ seal: ProjectSeal, _ id: String) -> JSONValue {
        var members = JSONObject([
            ("type", .string(type)), ("inserted_at", .number(Int(insertedAt))),
            ("updated_at", .number(Int(updatedAt))), ("settings", .object(sealedSettings(seal, id))),
        ])
        for (name, value) in unknown.members {
            assert(members[name] == nil, "an unknown member of an extension replaces no known one")
            members[name] = value
        }
        return .object(members)
    }

    private func sealedSettings(_ seal: ProjectSeal, _ id: String) -> JSONObject {
        var sealed = settings
        for name in Self.secretSettings {
            guard let text = settings[name]?.string else { continue }
            sealed[name] = .string(seal.seal(text, of: id, name))
        }
        return sealed
    }

    fileprivate init(stored value: JSONValue, _ seal: ProjectSeal, _ id: String) throws(StoredProjectMistake) {
        guard var members = value.object, let type = members.take("type")?.string,
            let insertedAt = members.take("inserted_at")?.integer,
            let updatedAt = members.take("updated_at")?.integer, var settings = members.take("settings")?.object
        else { throw StoredProjectMistake("an extension has no type, inserted_at, updated_at or settings") }
        for name in Self.secretSettings {
            guard let sealed = settings[name] else { continue }
            guard let text = sealed.string.flatMap({ seal.open($0, of: id, name) }) else {
                throw StoredProjectMistake("\(name) of a project cannot be decrypted")
            }
            settings[name] = .string(text)
        }
        self.init(
            type: type, settings: settings, insertedAt: Int64(insertedAt), updatedAt: Int64(updatedAt),
            unknown: members)
    }
}

/// Error about a stored project that cannot be read. Its text contains no values, because a value may be a secret.
struct StoredProjectMistake: Error {
    let message: String

    init(_ message: String) { self.message = message }
}

extension JSONObject {
    /// Removes a member of the object and returns its value.
    fileprivate mutating func take(_ name: String) -> JSONValue? {
        defer { self[name] = nil }
        return self[name]
    }
}

/// Times in the reference server's form: UTC, without a time zone.
public enum TimeText {
    static func write(_ seconds: Int64) -> String {
        String(WallTime(millisecondsSince1970: seconds * 1000).description.prefix(19))
    }
}
