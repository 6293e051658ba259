import Bytes
import Change

/// A change whose values were removed from the log on request. Only the fact that it happened is left.
public struct ForgottenChange: Sendable, Hashable {
    public let old: ForgottenMark?
    public let new: ForgottenMark?

    init(_ change: borrowing Change) {
        (old, new) = change.forgottenMarks
    }

    /// Day of the removal, as days since 1970; nil if the image had no room for it.
    public var day: UInt16? { (new ?? old)?.day }

    /// Day of the removal in the form `2026-11-26`.
    public var date: String? { day.map { String(TimeText.write(Int64($0) * 86_400_000_000, digits: 0).prefix(10)) } }

    /// False only if the change certainly does not concern the row with this key.
    func fits(_ keyHash: UInt64) -> Bool {
        let marks = [old, new].compactMap { $0 }
        return marks.isEmpty || marks.contains { $0.fits(keyHash) }
    }
}
