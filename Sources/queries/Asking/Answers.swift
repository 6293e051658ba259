import Diagnostics
import Postgres

extension [String?] {
    /// Returns a Boolean column of a row. True only if PostgreSQL returned true; false for false, NULL or a missing
    /// column.
    public func flag(_ index: Int) -> Bool { indices.contains(index) && self[index] == "t" }
}

extension ArraySlice {
    /// Returns the first elements to send together: at most `most`, at most `limit` in total size, but always at least
    /// one.
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
    /// Counts and logs an inconsistent answer of a session, and returns an error that ends the session. The caller
    /// throws it.
    public static func impossible(_ rule: StaticString, in room: Impossible.Room) -> PostgresError {
        Impossible.happened(rule, in: room)
        return PostgresError(operation: "ask", message: "\(rule)")
    }
}

/// Returns each statement with its answer. Throws if the numbers differ, so that no question gets the answer of another
/// one.
public func eachAnswered<Asked, Answer>(
    _ asked: some Collection<Asked>, by answers: some Collection<Answer>, in room: Impossible.Room
) throws(PostgresError) -> [(Asked, Answer)] {
    guard asked.count == answers.count else {
        throw PostgresError.impossible("each question has one answer", in: room)
    }
    return Array(zip(asked, answers))
}
