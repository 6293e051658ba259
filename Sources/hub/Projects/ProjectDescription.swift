import Bytes
import Diagnostics
import Settings

/// Description of a project in a request: the members of `tenant`. It makes a new record, or changes the named members
/// of an existing record.
public struct ProjectDescription: Sendable, Equatable {
    private let members: JSONObject
    private let pathName: String?
    /// Name of the project; nil if the description has none.
    public let externalID: String?

    /// Creates a description.
    ///
    /// - Parameter pathName: name of the project in the request's path, which replaces the one in the body.
    init(_ members: JSONObject, named pathName: String? = nil) {
        self.members = members
        self.pathName = pathName
        externalID = pathName ?? members["external_id"].flatMap(Self.name)
    }

    /// Parses a request's body and returns the members of its object `tenant`.
    static func read(_ body: [UInt8], named pathName: String? = nil) throws(ProjectBodyError) -> ProjectDescription {
        let value: JSONValue
        do throws(ByteError) {
            value = try JSONValue.parse(
                body, maximumDepth: Limits.maximumProjectDepth)
        } catch {
            throw .notJSON
        }
        guard let members = value.object?["tenant"]?.object else { throw .noTenant }
        return ProjectDescription(members, named: pathName)
    }

    private static func name(_ value: JSONValue) -> String? {
        guard let text = value.string, !text.isEmpty else { return nil }
        return text
    }

    /// Returns the record that results from the description. `old` is the existing record; nil if there is none.
    func record(
        replacing old: ProjectRecord?, _ defaults: ProjectDefaults, at now: Int64
    ) throws(ProjectMistakes) -> ProjectRecord {
        var mistakes = ProjectMistakes()
        let externalID = checkedName(isNew: old == nil, &mistakes)
        var fields = changedFields(of: old, defaults, &mistakes)
        if old == nil { fields["name"] = .string(externalID) }
        let extensions = changedExtensions(of: old, defaults, at: now, &mistakes)
        if mistakes.isEmpty, fields["jwt_secret"] == nil, fields["jwt_jwks"] == nil {
            mistakes.add("jwt_secret", "either jwt_secret or jwt_jwks must be provided")
        }
        guard mistakes.isEmpty else { throw mistakes }
        assert(!externalID.isEmpty, "a record without mistakes has a name")
        assert(old == nil || old?.externalID == externalID, "a record replaces one of the same name")
        return ProjectRecord(
            id: old?.id ?? UUIDText.random(), externalID: externalID, insertedAt: old?.insertedAt ?? now,
            updatedAt: now, fields: fields, extensions: extensions, unknown: old?.unknown ?? JSONObject())
    }

    /// Returns the project's name after checks. An existing project keeps its name, even if a new one could not have
    /// it.
    private func checkedName(isNew: Bool, _ mistakes: inout ProjectMistakes) -> String {
        guard let externalID else {
            let isBlank = [nil, .null, .string("")].contains(members["external_id"])
            mistakes.add("external_id", isBlank ? "can't be blank" : "is invalid")
            return ""
        }
        if isNew, !Self.isHostLabel(externalID) {
            mistakes.add(
                "external_id",
                "must be the first part of a host name: a-z, 0-9, - and _, at most \(Limits.maximumProjectNameBytes), beginning "
                    + "and ending with a letter or digit, not digits alone")
        }
        if let pathName, let given = members["external_id"], ![.null, .string(pathName)].contains(given) {
            mistakes.add("external_id", "can't be changed")
        }
        return externalID
    }

    /// True if a host name can begin with the text (RFC 1123 §2.1, and also `_`, because resolvers accept it). Digits
    /// alone are refused, because they could be part of an IP address.
    static func isHostLabel(_ name: String) -> Bool {
        let bytes = Array(name.utf8)
        func isPlain(_ byte: UInt8) -> Bool { (97...122).contains(byte) || (48...57).contains(byte) }
        guard let first = bytes.first, let last = bytes.last, isPlain(first), isPlain(last) else { return false }
        return bytes.count <= Limits.maximumProjectNameBytes
            && bytes.allSatisfy { isPlain($0) || $0 == UInt8(ascii: "-") || $0 == UInt8(ascii: "_") }
            && !bytes.allSatisfy { (48...57).contains($0) }
    }

    /// Returns the project's fields as the description changes them. Fields that are not given stay. Null and an empty
    /// text restore the default.
    private func changedFields(
        of old: ProjectRecord?, _ defaults: ProjectDefaults, _ mistakes: inout ProjectMistakes
    ) -> JSONObject {
        var fields = JSONObject()
        for field in ProjectField.all {
            switch members[field.name] {
            case nil: fields[field.name] = old?.fields[field.name] ?? field.initial(defaults)
            case .null, .string(""): fields[field.name] = field.initial(defaults)
            // A client may send a stored value again without a change.
            case let given? where given == old?.fields[field.name]: fields[field.name] = given
            case let given?:
                fields[field.name] = field.cast(given)
                if fields[field.name] == nil { mistakes.add(field.name, field.mistake) }
            }
        }
        return fields
    }

    /// Returns the project's extensions as the description changes them. If extensions are given, they replace all
    /// earlier ones.
    private func changedExtensions(
        of old: ProjectRecord?, _ defaults: ProjectDefaults, at now: Int64, _ mistakes: inout ProjectMistakes
    ) -> [ProjectExtension] {
        guard let given = members["extensions"] else {
            if old == nil { mistakes.add("extensions", "can't be blank") }
            return old?.extensions ?? []
        }
        guard let elements = given.array else {
            mistakes.add("extensions", "is invalid")
            return []
        }
        guard elements.count == 1 else {
            mistakes.add("extensions", elements.isEmpty ? "can't be blank" : "is invalid")
            return []
        }
        do throws(ProjectMistakes) {
            return [try ProjectExtension(described: elements[0], defaults, at: now)]
        } catch {
            mistakes.add("extensions", each: [error])
            return []
        }
    }
}

extension ProjectDescription: CustomStringConvertible, CustomReflectable {
    public var description: String { "what project \(externalID ?? "without a name") shall be" }

    /// Empty mirror, because a description contains secrets.
    public var customMirror: Mirror { Mirror(self, children: []) }
}

/// Reason why a request's body is no description of a project.
enum ProjectBodyError: Error {
    case mistakes(ProjectMistakes)
    case notJSON
    case noTenant
}
