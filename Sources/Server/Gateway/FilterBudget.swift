import Diagnostics
import Net
import Protocol
import Synchronization

/// What the filters of all channels may take together: their conditions and the values that these name, each of which is
/// something in the index to be found by.
///
/// Counted in the texts that joins bring, before anything is made of them. A project has its share of the process's, and a
/// connection its own limit. Connections that take little share more than those that take much, and neither uses up what
/// the others have: the many who ask for a few rows each do not pay for the few who ask for lists.
final class FilterBudget: Sendable {
    private let limit: Int
    private let whole: FilterBudget?
    /// Taken by connections that hold at most `Limits.fewFilterParts`.
    private let ofFew = Atomic<Int>(0)
    private let ofMany = Atomic<Int>(0)

    init(_ limit: Int, of whole: FilterBudget? = nil) {
        self.limit = limit
        self.whole = whole
    }

    typealias Refusal = Metrics.FiltersRefused

    /// Takes what one more channel needs of a connection that has taken `held`.
    func take(_ parts: Int, of held: Int) throws(Refusal) {
        guard parts > 0 else { return }
        guard held + parts <= Limits.filterPartsOfConnection else { throw refused(.connection) }
        move(from: held, to: held + parts)
        guard hasRoom(isLittle: Self.isLittle(held + parts)) else {
            move(from: held + parts, to: held)
            throw refused(.project)
        }
        Metrics.shared.filterParts.add(Int64(parts))
    }

    /// Of a connection that had `held` until now.
    func give(back parts: Int, of held: Int) {
        move(from: held, to: held - parts)
        Metrics.shared.filterParts.add(-Int64(parts))
    }

    private func refused(_ why: Refusal) -> Refusal {
        Metrics.shared.filtersRefused[why].add()
        return why
    }

    private static func isLittle(_ held: Int) -> Bool { held <= Limits.fewFilterParts }

    private func move(from before: Int, to after: Int) {
        add(-before, Self.isLittle(before))
        add(after, Self.isLittle(after))
        whole?.move(from: before, to: after)
    }

    private func add(_ parts: Int, _ isLittle: Bool) {
        if isLittle { ofFew.add(parts, ordering: .relaxed) } else { ofMany.add(parts, ordering: .relaxed) }
    }

    private func hasRoom(isLittle: Bool) -> Bool {
        let isThere =
            isLittle
            ? ofFew.load(ordering: .relaxed) <= Limits.filterPartsForFew * limit
            : ofMany.load(ordering: .relaxed) <= limit
        return isThere && whole?.hasRoom(isLittle: isLittle) ?? true
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
