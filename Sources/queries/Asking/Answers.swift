import Diagnostics
import Postgres

extension [String?] {
    /// A column of an answer's row, which is true where PostgreSQL says so, and in no other case.
    public func flag(_ index: Int) -> Bool { indices.contains(index) && self[index] == "t" }
}

extension ArraySlice {
    /// The first of them that are sent together: no more than so many, and no larger together than that, but always one.
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
    /// What a session says cannot be told apart any more: it is counted and logged, and thrown so that the session ends.
    public static func impossible(_ rule: StaticString, in room: Impossible.Room) -> PostgresError {
        Impossible.happened(rule, in: room)
        return PostgresError(operation: "ask", message: "\(rule)")
    }
}

/// For each statement its answer: what is asked of them is never told by another's.
public func eachAnswered<Asked, Answer>(
    _ asked: some Collection<Asked>, by answers: some Collection<Answer>, in room: Impossible.Room
) throws(PostgresError) -> [(Asked, Answer)] {
    guard asked.count == answers.count else {
        throw PostgresError.impossible("each question has one answer", in: room)
    }
    return Array(zip(asked, answers))
}
