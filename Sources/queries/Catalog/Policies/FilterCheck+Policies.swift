import Diagnostics
import Policy

extension FilterCheck.Settings {
    /// Returns the limits for predicates that the hub builds from policies and memberships.
    public static func ofPolicies(_ snapshot: CatalogSnapshot?) -> FilterCheck.Settings {
        FilterCheck.Settings(
            maximumListElements: Limits.maximumMembershipKeys, maximumKeys: Limits.maximumMembershipKeys,
            maximumWork: Limits.maximumFilterWork, text: snapshot?.text ?? .unknown)
    }
}
