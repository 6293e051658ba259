import Diagnostics
import Net
import Protocol

extension HolderBudget.Rules {
    /// Rules of the budget for conditions and values of filters, each of which has an entry in the predicate index. The
    /// hub counts them in the text of a join before it parses the filters.
    public static let filterParts = HolderBudget.Rules(
        limit: Limits.filterParts, ofHolder: Limits.filterPartsOfConnection, few: Limits.fewFilterParts,
        timesForFew: Limits.filterPartsForFew)
}

extension HolderBudget.Refusal {
    public var messageOfFilters: String {
        switch self {
        case .connection:
            "TooManyFilterValues: The filters of a connection can have at most \(Limits.filterPartsOfConnection) conditions "
                + "and values together: leave channels that are not needed, or filter by a column that says the same in "
                + "one value"
        case .project:
            "TooManyFilterValues: The filters of all connections have as many conditions and values as there is room for: "
                + "use shorter lists, or try again later"
        }
    }
}

/// Period for which changes skip a connection's filters because they took too much work. It doubles on each repetition.
public struct FilterRest {
    private var until: UInt64 = 0
    private var length = Duration.zero

    public init() {}

    /// Returns the remaining time of the period in seconds; nil if no period is running.
    public func secondsLeft(_ now: UInt64) -> Int? { until > now ? Int((until - now) / 1_000_000_000) + 1 : nil }

    public mutating func begin(_ now: UInt64) -> Duration {
        let isForgotten = now > until + Limits.filterRestForgotten.wholeNanoseconds
        length = isForgotten ? Limits.filterRest : min(length * 2, Limits.maximumFilterRest)
        until = now + length.wholeNanoseconds
        return length
    }

    public static func message(_ seconds: Int) -> String {
        "The filters of this connection take more time than there is for them: for \(seconds) seconds its changes are not "
            + "delivered. Use eq, in, gt, lt or like 'beginning%', which cost nothing for the rows that they do not match, or fewer "
            + "filters, and fetch what was missed"
    }
}
