extension [String?] {
    /// A column of an answer's row, which is true where PostgreSQL says so, and in no other case.
    public func flag(_ index: Int) -> Bool { indices.contains(index) && self[index] == "t" }
}

extension ArraySlice {
    /// The first of them that are sent together: no more than so many, and no larger together than that, but always one.
    public func fitting(_ most: Int = .max, bytes limit: Int, _ bytes: (Element) -> Int) -> ArraySlice {
        precondition(most > 0, "something is sent each time")
        var sum = 0
        let count = prefix(most).prefix { element in
            sum += bytes(element)
            return sum <= limit
        }.count
        return prefix(Swift.max(1, count))
    }
}
