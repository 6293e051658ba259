import Diagnostics
import Postgres

extension [String?] {
    /// Returns the value of a Boolean column. False for false, for NULL, and for a column that the row lacks.
    public func flag(_ index: Int) -> Bool { indices.contains(index) && self[index] == "t" }
}

extension ArraySlice {
    /// Returns the first elements, which the caller then sends together. Their number is at most `most` and their total
    /// size at most `limit`. One element is always returned, even if it exceeds the limit.
    public func fitting(_ most: Int = .max, within limit: Int, _ size: (Element) -> Int) -> ArraySlice {
        precondition(most > 0, "something is sent each time")
        var sum = 0
        let count = prefix(most).prefix { element in
            sum += size(element)
            return sum <= limit
        }.count
        assert(count <= most, "no more is sent together than may be")
        return prefix(Swift.max(1, count))
    }
}

extension PostgresError {
    /// Records that a session gave an inconsistent answer (a bug), and returns an error. The caller throws it, which
    /// ends the session.
    public static func impossible(_ rule: StaticString, in room: Impossible.Room) -> PostgresError {
        Impossible.happened(rule, in: room)
        return PostgresError(operation: "ask", message: "\(rule)")
    }
}

/// Returns each statement together with its answer. Throws if the numbers differ, so that no statement gets the answer
/// to another one.
public func eachAnswered<Asked, Answer>(
    _ asked: some Collection<Asked>, by answers: some Collection<Answer>, in room: Impossible.Room
) throws(PostgresError) -> [(Asked, Answer)] {
    guard asked.count == answers.count else {
        throw PostgresError.impossible("each question has one answer", in: room)
    }
    return Array(zip(asked, answers))
}
