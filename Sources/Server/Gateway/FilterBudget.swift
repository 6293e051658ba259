import Diagnostics
import Net
import Protocol
import Synchronization

/// What the filters of all channels may take together: their conditions and the values that these name, each of which is
/// something in the index to be found by.
///
/// Counted in the texts that joins bring, before anything is made of them. A project has its share of the process's, and a
/// connection its own limit. A connection that takes little may go further than those that take much: the many who ask for
/// a few rows each do not pay for the few who ask for lists.
final class FilterBudget: Sendable {
    private let limit: Int
    private let whole: FilterBudget?
    private let used = Atomic<Int>(0)

    init(_ limit: Int, of whole: FilterBudget? = nil) {
        self.limit = limit
        self.whole = whole
    }

    typealias Refusal = Metrics.FiltersRefused

    /// Takes what one more channel needs of a connection that has taken `held`.
    func take(_ parts: Int, of held: Int) throws(Refusal) {
        guard held + parts <= Limits.filterPartsOfConnection else { throw refused(.connection) }
        guard isTaken(parts, isLittle: held + parts <= Limits.fewFilterParts) else { throw refused(.project) }
        Metrics.shared.filterParts.add(Int64(parts))
    }

    private func refused(_ why: Refusal) -> Refusal {
        Metrics.shared.filtersRefused[why].add()
        return why
    }

    func give(back parts: Int) {
        add(-parts)
        Metrics.shared.filterParts.add(-Int64(parts))
    }

    private func isTaken(_ parts: Int, isLittle: Bool) -> Bool {
        add(parts)
        if hasRoom(isLittle) { return true }
        add(-parts)
        return false
    }

    private func add(_ parts: Int) {
        used.add(parts, ordering: .relaxed)
        whole?.add(parts)
    }

    private func hasRoom(_ isLittle: Bool) -> Bool {
        used.load(ordering: .relaxed) <= (isLittle ? Limits.filterPartsForFew : 1) * limit
            && whole?.hasRoom(isLittle) ?? true
    }
}

extension Metrics.FiltersRefused: Error {
    var message: String {
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

/// The time for which a connection's filters are left out of changes: longer each time.
struct FilterRest {
    private var until: UInt64 = 0
    private var length = Duration.zero

    /// Nil when it does not rest.
    func secondsLeft(_ now: UInt64) -> Int? { until > now ? Int((until - now) / 1_000_000_000) + 1 : nil }

    mutating func begin(_ now: UInt64) -> Duration {
        let isForgotten = now > until + Limits.filterRestForgotten.wholeNanoseconds
        length = isForgotten ? Limits.filterRest : min(length * 2, Limits.maximumFilterRest)
        until = now + length.wholeNanoseconds
        return length
    }

    static func message(_ seconds: Int) -> String {
        "The filters of this connection take more time than there is for them: for \(seconds) seconds its changes are not "
            + "delivered. Use eq, in, gt, lt or like 'beginning%', which cost nothing for the rows that they do not match, or fewer "
            + "filters, and fetch what was missed"
    }
}

extension BindingParameters {
    var filterParts: Int { Self.parts(of: filter) }

    /// Conditions, and values of lists: commas stand between them.
    static func parts(of filter: String?) -> Int {
        guard let filter else { return 1 }
        let bytes = filter.utf8.span
        var count = 1
        for index in bytes.indices where bytes[index] == UInt8(ascii: ",") { count += 1 }
        return count
    }
}

/// A project's shares of what all clients may take together.
struct ProjectBudgets {
    /// Messages and requests that are not whole.
    let input: InputBudget
    let filters: FilterBudget
}
