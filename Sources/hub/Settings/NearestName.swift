/// Suggestion for a name that does not exist: the name that the operator probably meant.
public enum NearestName {
    /// Returns the closest candidate; nil if none is close, because a wrong suggestion is worse than none.
    public static func to(_ name: String, among candidates: some Sequence<String>) -> String? {
        let name = name.lowercased()
        let closest = candidates.map { (name: $0, distance: distance(name, $0.lowercased())) }
            .min { $0.distance < $1.distance }
        guard let closest, closest.distance <= max(1, min(name.count, closest.name.count) / 3) else { return nil }
        return closest.name
    }

    /// Returns the number of insertions, deletions, replacements and swaps of neighbours between two texts (the optimal
    /// string alignment distance). Keeps only the last three rows of the matrix.
    static func distance(_ left: String, _ right: String) -> Int {
        let left = Array(left.utf8.prefix(longestCompared))
        let right = Array(right.utf8.prefix(longestCompared))
        var beforePrevious: [Int] = []
        var previous = Array(0...right.count)
        for row in 0..<left.count {
            var current = [row + 1]
            for column in 0..<right.count {
                let replaced = previous[column] + (left[row] == right[column] ? 0 : 1)
                var best = min(replaced, previous[column + 1] + 1, current[column] + 1)
                let isSwap = row > 0 && column > 0 && left[row] == right[column - 1] && left[row - 1] == right[column]
                if isSwap { best = min(best, beforePrevious[column - 1] + 1) }
                current.append(best)
            }
            (beforePrevious, previous) = (previous, current)
        }
        return previous[right.count]
    }

    /// Number of bytes that are compared. The time grows with the product of the lengths, and clients can send long
    /// texts.
    private static let longestCompared = 100
}
