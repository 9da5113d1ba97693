//! Describers of IP addresses and ranges of services.

use api::Value;

use super::{
    DescribeContext,
    description::{Description, format_time},
};
use crate::object::ObjectFields;

/// Describes an IPAddress.
pub fn ip_address(context: &DescribeContext, out: &mut Description, address: &Value) {
    out.metadata(address, false);
    if let Some(parent) = address.at("spec.parentRef") {
        out.line(0, "Parent Reference:");
        for (label, field) in
            [("Group", "group"), ("Resource", "resource"), ("Namespace", "namespace"), ("Name", "name")]
        {
            out.field(1, label, parent.text(field));
        }
    }
    context.events(out, address);
}

/// Describes a ServiceCIDR.
pub fn service_cidr(context: &DescribeContext, out: &mut Description, range: &Value) {
    out.metadata(range, false);
    let cidrs: Vec<&str> = range.list("spec.cidrs").iter().filter_map(Value::as_str).collect();
    out.field(0, "CIDRs", &cidrs.join(", "));
    let conditions = range.list("status.conditions");
    if !conditions.is_empty() {
        out.line(0, "Status:");
        out.line(0, "Conditions:");
        out.line(1, "Type\tStatus\tLastTransitionTime\tReason\tMessage");
        out.line(1, "----\t------\t------------------\t------\t-------");
        for condition in conditions {
            let cells = [
                condition.text("type"),
                condition.text("status"),
                &format_time(condition.text("lastTransitionTime")),
                condition.text("reason"),
                condition.text("message"),
            ];
            out.line(1, &cells.join("\t"));
        }
    }
    context.events(out, range);
}
