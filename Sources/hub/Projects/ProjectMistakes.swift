import Bytes

/// Mistakes in the description of a project, by field, in the reference server's form: `{"errors":{…}}`.
public struct ProjectMistakes: Error, Equatable {
    private(set) var errors = JSONObject()

    init(_ mistakes: [(String, String)] = []) {
        for (field, message) in mistakes { add(field, message) }
    }

    var isEmpty: Bool { errors.isEmpty }

    mutating func add(_ field: String, _ message: String) {
        errors[field] = .array((errors[field]?.array ?? []) + [.string(message)])
    }

    /// Adds to the field the mistakes of each element of a list; an element without mistakes gets an empty object.
    mutating func add(_ field: String, each elements: [ProjectMistakes]) {
        guard elements.contains(where: { !$0.isEmpty }) else { return }
        assert(errors[field] == nil, "mistakes of a list do not replace others of its field")
        errors[field] = .array(elements.map { .object($0.errors) })
    }

    /// JSON body of the answer.
    public var json: [UInt8] {
        JSONValue.object(JSONObject([("errors", .object(errors))])).bytes
    }
}
